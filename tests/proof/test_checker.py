"""The checker can fail: a good history passes, and each way of forging it is found by the rule that is there for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.proof.call_rules import CALL_RULES
from tests.proof.checker import RULES, violations
from tests.proof.signer import text_of
from tests.proof.told import LOST, Entry, History, Restart, Seen, Told

Forge = Callable[[History], History]
ME = {"cn": "ant", "generation": "1", "key": "k"}
TICKET = {"cn": "ant", "ticket_digest": "aa"}


def said(op: str, at: float, status: int = 200, answer: dict[str, object] | None = None, **about: str) -> Told:
    return Told("client", op, at, at + 0.5, status, about, answer or {})


def sent(id: str, at: float) -> Told:
    return said("send", at, id=id, cn="ant", generation="1")


def consumed(id: str, at: float, attempt: str = "", **about: str) -> Told:
    return said("consume", at, 200, {"advisory_text": text_of(id)}, **{**ME, "id": id, "attempt": attempt, **about})


def checked(id: str, at: float, state: str) -> Told:
    return said("check", at, 200, {"state": state}, **{**ME, "id": id, "attempt": ""})


def missed(id: str, at: float) -> Told:
    return said("consume", at, 404, {"error": "not found"}, **{**ME, "id": id, "attempt": ""})


def revoked(id: str, at: float) -> Told:
    return said("revoke", at, 200, {"revoked": True}, id=id)


def enrolled(at: float, generation: int, **changes: str) -> Told:
    answer = {"generation": generation, "cert_digest": f"c{generation}"}
    return said("enrol", at, 200, answer, **{**TICKET, "key": "k", **changes})


def entries(*facts: dict[str, object]) -> list[Entry]:
    rest: Any = [fact.get("rest", 0) for fact in facts]
    return [Entry(n, str(fact["kind"]), f"h{n - 1}", fact, rest[n - 1]) for n, fact in enumerate(facts, 1)]


def admitted_fact(id: str) -> dict[str, object]:
    return {"kind": "directive_admitted", "id": id, "cn": "ant", "generation": 1}


def consumed_fact(id: str) -> dict[str, object]:
    return {"kind": "directive_consumed", "id": id, "cn": "ant", "generation": 1, "attempt": "a"}


def enrolled_fact(generation: int) -> dict[str, object]:
    return {"kind": "agent_enrolled", "generation": generation, "cert_digest": f"c{generation}", **TICKET}


def listed(at: float, **directives: str) -> Seen:
    return Seen(at, directives, {"ant": (1, "enrolled")})


GOOD = History(
    told=[
        enrolled(1, 1),
        sent("d1", 2),
        sent("d2", 3),
        sent("d3", 4),
        replace(consumed("d1", 5, "a"), status=LOST, answer={}),
        consumed("d1", 12, "a"),
        revoked("d2", 6),
        checked("d3", 7, "active"),
    ],
    restarts=[
        Restart(0, 4, "h4", (), Seen()),
        Restart(1, 6, "h6", (), listed(10, d1="consumed", d2="revoked", d3="active")),
        Restart(2, 6, "h6", (), listed(20, d1="consumed", d2="revoked", d3="active")),
    ],
    journal=entries(
        enrolled_fact(1),
        admitted_fact("d1"),
        admitted_fact("d2"),
        admitted_fact("d3"),
        consumed_fact("d1"),
        {"kind": "directive_revoked", "id": "d2"},
    ),
)


def tell(*more: Told) -> Forge:
    return lambda good: replace(good, told=[*good.told, *more])


def write(*facts: dict[str, object]) -> Forge:
    return lambda good: replace(good, journal=entries(*(entry.fields for entry in good.journal), *facts))


def restart(number: int, **changes: object) -> Forge:
    def forge(good: History) -> History:
        restarts = list(good.restarts)
        restarts[number] = replace(restarts[number], **changes)  # type: ignore[arg-type]
        return replace(good, restarts=restarts)

    return forge


FORGERIES: dict[str, tuple[str, Forge]] = {
    "a life that ended with damage": ("chain_intact", restart(1, problems=("damage",))),
    "a record that another took the place of": ("chain_intact", restart(0, head="h5")),
    "records that went away": ("chain_intact", restart(1, records=7)),
    "an id that was admitted twice": ("every_end_once", write(admitted_fact("d1"))),
    "an id that ended twice": ("every_end_once", write(consumed_fact("d2"))),
    "a generation that was left out": ("generations_monotone", write(enrolled_fact(3))),
    "a generation that came again": ("generations_monotone", write(enrolled_fact(1))),
    "a daemon that forgot an enrolment": (
        "generations_monotone",
        restart(2, seen=Seen(20, {}, {"ant": (0, "invited")})),
    ),
    "an agent frozen for nothing": ("generations_monotone", restart(2, seen=Seen(20, {}, {"ant": (1, "frozen")}))),
    "an acknowledged send without a record": ("acknowledged_is_written", tell(sent("d9", 30))),
    "an acknowledged renewal without a record": (
        "acknowledged_is_written",
        tell(said("renew", 30, 200, {"generation": 1, "cert_digest": "c9"}, **ME)),
    ),
    "a record that nobody asked for": ("written_was_asked", write({"kind": "directive_revoked", "id": "d3"})),
    "a send that is not listed": ("acknowledged_is_listed", restart(2, seen=listed(20, d1="consumed", d2="revoked"))),
    "a consumed one that is active": (
        "acknowledged_is_listed",
        restart(2, seen=listed(20, d1="active", d2="revoked", d3="active")),
    ),
    "a final state that changed": (
        "final_stays_final",
        restart(2, seen=listed(20, d1="consumed", d2="expired", d3="active")),
    ),
    "an enrolment that is not listed": ("final_stays_final", restart(1, seen=Seen(10, {}, {"bee": (1, "enrolled")}))),
    "an action for two attempts": ("handed_out_once", tell(consumed("d1", 13, "b"))),
    "an action for two keys": ("handed_out_once", tell(consumed("d1", 13, "a", key="other"))),
    "an action twice without an attempt": ("handed_out_once", tell(consumed("d3", 30), consumed("d3", 31))),
    "an action of another directive": (
        "handed_out_once",
        tell(replace(consumed("d3", 30), answer={"advisory_text": text_of("d1")})),
    ),
    "a revoked one that was handed out": ("ended_is_over", tell(consumed("d2", 30))),
    "a consumed one that is said to be active": ("ended_is_over", tell(checked("d1", 30, "active"))),
    "an older identity that was served": ("older_identities_get_nothing", tell(enrolled(30, 2), consumed("d3", 31))),
    "a revoked agent that was served": (
        "older_identities_get_nothing",
        tell(said("agent_revoke", 30, 200, {"revoked": True}, **ME), checked("d3", 31, "active")),
    ),
    "a ticket for two keys": ("tickets_work_once", tell(enrolled(30, 2, key="other"))),
    "a directive that is gone without a cause": ("sent_can_be_had", tell(missed("d3", 30))),
    "an answer that nobody knows": ("answers_are_known", tell(replace(missed("d1", 30), status=500))),
    "an answer that never came": (
        "answers_are_known",
        tell(replace(missed("d1", 30), status=LOST, answer={"error": "no answer in time"})),
    ),
}


def test_a_good_history_is_one() -> None:
    assert violations(GOOD) == []


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_history_is_found_out(name: str) -> None:
    rule, forge = FORGERIES[name]
    assert rule in {words.split(":")[0] for words in violations(forge(GOOD))}


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _ in FORGERIES.values()} == {rule.__name__ for rule in RULES if rule not in CALL_RULES}


def test_a_miss_with_a_cause_and_a_write_that_failed_are_none() -> None:
    rival = replace(consumed("d3", 29), status=LOST, answer={})
    assert violations(tell(rival, missed("d3", 30))(GOOD)) == []
    assert violations(replace(tell(missed("d3", 30))(GOOD), disk_fails=True)) == []
