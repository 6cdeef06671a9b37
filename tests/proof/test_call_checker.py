"""The checker's rules of tool calls can fail: each way of forging a good history is found by the rule for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.proof.call_rules import CALL_RULES
from tests.proof.checker import violations
from tests.proof.told import Execution, History, Restart, Seen, Told, Used
from tests.proof.tool_desk import MOST_CALLS, MOST_READS, SERVER, digest

Fact = dict[str, object]
Forge = Callable[[History], History]
ME: dict[str, str] = {"cn": "ant", "generation": "1"}
LIVE, DEAD = {"kind": "broker_started"}, ("outcome_unknown", "")


def said(op: str, at: float, answer: Fact | None = None, **about: str) -> Told:
    return Told("client", op, at, at + 0.5, 200, {**ME, **about}, {"code": "", "text": "", **(answer or {})})


def called(word: str, at: float, code: str = "", text: str = "", tool: str = "write", call_id: str = "") -> Told:
    text = text or ("" if code else f"{tool} {word} 1")
    answer: Fact = {"code": code, "text": text, "failed": False, "request": ""}
    return said("call", at, answer, tool=f"{SERVER}.{tool}", word=word, call_id=call_id, key="k")


def usage(at: float, tokens: int) -> Told:
    return said("usage", at, {"added": True}, run="r1", input_tokens=str(tokens), cost_micro="5")


def claimed(claim: str, word: str, consent: str, tool: str = "write", call_id: str = "", run: str = "r1") -> Fact:
    account = "mail" if tool == "read" else ""
    return {
        "kind": "call_claimed", "claim": claim, "run": run, "consent": consent, "call_id": call_id,
        **_bound(word, tool, account),
    }  # fmt: skip


def _bound(word: str, tool: str = "write", account: str = "") -> Fact:
    call: Fact = {"tool": f"{SERVER}.{tool}", "account": account, "args_digest": digest(word)}
    return {"cn": "ant", "generation": 1, **call}


def ended(claim: str, outcome: str = "done") -> Fact:
    return {"kind": "call_ended", "claim": claim, "outcome": outcome}


def granted(act: str, word: str, request: str = "") -> Fact:
    return {"kind": "act_granted", "act": act, "request": request, **_bound(word)}


def opened(lease: str) -> Fact:
    return {"kind": "lease_opened", "lease": lease, "request": "", "cn": "ant", "generation": 1, "account": "mail",
            "operations": MOST_READS}  # fmt: skip


def asked(request: str, word: str) -> Fact:
    return {"kind": "request_opened", "request": request, **_bound(word)}


APPROVED = said("approve", 3, act="a1", request="q1", word="one")
GOOD = History(
    told=[
        called("one", 1, "consent_required", call_id="k-one"),
        APPROVED,
        called("one", 4, call_id="k-one"),
        said("approve", 3, act="a3", request="", word="three"),
        called("two", 5, "outcome_unknown", call_id="k-two"),
        said("approve", 4, act="a2", request="", word="two"),
        said("lease", 6, lease="l1", request=""),
        called("mail", 7, tool="read"),
        usage(8, 7),
        called("one", 21, call_id="k-one"),
    ],
    restarts=[
        Restart(0, began=0, ended=9),
        Restart(1, began=10, ended=30, seen=Seen(
            11, agents={"ant": (1, "enrolled")}, acts={"a1": "claimed", "a2": "claimed", "a3": "active"},
            runs={"r1": Used(("ant", 1), 3, 7)}, records=(17, 18),
        )),
    ],
    journal=[],
    executions=[Execution("write", "one", "1"), Execution("write", "two", "1"), Execution("read", "mail", "1")],
)  # fmt: skip
RECORDS: list[Fact] = [
    LIVE,
    {"kind": "agent_enrolled", "cn": "ant", "generation": 1, "ticket_digest": "", "cert_digest": ""},
    {"kind": "run_started", "run": "r1", "cn": "ant", "generation": 1},
    asked("q1", "one"),
    granted("a1", "one", "q1"),
    granted("a2", "two"),
    granted("a3", "three"),
    claimed("c1", "one", "act/a1", call_id="k-one"),
    ended("c1"),
    opened("l1"),
    claimed("c3", "mail", "lease/l1", "read"),
    ended("c3"),
    {"kind": "usage_reported", "run": "r1", "input_tokens": 7, "cost_micro": 5},
    claimed("c2", "two", "act/a2", call_id="k-two"),
    {**ended("c2", "outcome_unknown"), "rest": 2},
    {"kind": "lease_closed", "lease": "l1", "reason": "restart", "rest": 1},
    LIVE,
]


def written(history: History, records: list[Fact]) -> History:
    from tests.proof.test_checker import entries

    return replace(history, journal=entries(*records))


def tell(*more: Told) -> Forge:
    return lambda good: written(replace(good, told=[*good.told, *more]), RECORDS)


def write(*facts: Fact, at: int = len(RECORDS)) -> Forge:
    return lambda good: written(good, [*RECORDS[:at], *facts, *RECORDS[at:]])


def without(*at: int) -> Forge:
    return lambda good: written(good, [fact for n, fact in enumerate(RECORDS) if n not in at])


def instead(at: int, **changes: object) -> Forge:
    return lambda good: written(good, [{**fact, **(changes if n == at else {})} for n, fact in enumerate(RECORDS)])


def executed(*more: Execution) -> Forge:
    return lambda good: written(replace(good, executions=[*good.executions, *more]), RECORDS)


def seen(**changes: object) -> Forge:
    def forge(good: History) -> History:
        last = good.restarts[-1]
        restarts = [good.restarts[0], replace(last, seen=replace(last.seen, **changes))]  # type: ignore[arg-type]
        return written(replace(good, restarts=restarts), RECORDS)

    return forge


READS = [fact for n in range(MOST_READS) for fact in (claimed(f"m{n}", "mail", "lease/l1", "read"), ended(f"m{n}"))]
CALLS = [fact for n in range(MOST_CALLS) for fact in (claimed(f"n{n}", "x", "automatic", "look"), ended(f"n{n}"))]
FORGERIES: dict[str, tuple[str, Forge]] = {
    "an intent that stays open": ("claims_end_once", without(14)),
    "an outcome after an outcome": ("claims_end_once", write(ended("c1", "failed"))),
    "an outcome that a dead daemon's call had": ("claims_end_once", instead(14, outcome="done")),
    "an outcome that the start did not write": (
        "claims_end_once",
        lambda good: written(good, [*RECORDS[:14], *RECORDS[15:], ended("c2", "outcome_unknown")]),
    ),
    "an act that serves twice": ("acts_serve_once", write(claimed("c9", "one", "act/a1"), ended("c9"))),
    "an act for another call": ("acts_serve_once", write(claimed("c9", "else", "act/a3"), ended("c9"))),
    "an act that was taken back": (
        "acts_serve_once",
        write(
            {"kind": "act_ended", "act": "a3", "state": "revoked"},
            claimed("c9", "three", "act/a3"),
            ended("c9"),
        ),
    ),
    "a spent act that is taken back": (
        "acts_serve_once",
        write({"kind": "act_ended", "act": "a1", "state": "revoked"}),
    ),
    "an act that was taken back while its call ran": (
        "acts_serve_once",
        write(
            {"kind": "act_ended", "act": "a1", "state": "revoked"},
            ended("c1", "not_dispatched"),
            claimed("c9", "one", "act/a1"),
            at=8,
        ),
    ),
    "an act that is taken back twice": (
        "acts_serve_once",
        write(*[{"kind": "act_ended", "act": "a1", "state": "revoked"}] * 2, at=8),
    ),
    "a revocation that is forgotten": (
        "restarts_keep_what_was_told",
        tell(said("act_revoke", 6, {"revoked": True}, act="a3")),
    ),
    "a lease that outlives a restart": ("leases_close", write(claimed("c9", "m", "lease/l1", "read"), ended("c9"))),
    "a read more than was signed": ("leases_close", write(*READS, at=10)),
    "a lease that was replaced": (
        "leases_close",
        write(opened("l2"), claimed("c9", "m", "lease/l1", "read"), ended("c9"), at=10),
    ),
    "a request with two answers": ("requests_end_once", write({"kind": "request_denied", "request": "q1"})),
    "a run beyond its budget": ("budgets_hold", write(*CALLS)),
    "a call that is executed twice": ("executed_once", executed(Execution("write", "one", "2"))),
    "a call without an intent": ("executed_once", executed(Execution("write", "new", "1"))),
    "an execution that is said not to have been": ("executed_once", instead(14, outcome="not_dispatched")),
    "an outcome without an execution": (
        "executed_once",
        write(claimed("c9", "three", "act/a3"), ended("c9")),
    ),
    "an answer of nobody's": ("told_what_was_done", tell(called("one", 30, text="write one 9"))),
    "the answer to another call": ("told_what_was_done", tell(called("two", 30, text="write one 1"))),
    "an answer that two calls had": ("told_what_was_done", tell(called("one", 30, call_id="k-other"))),
    "an outcome that was lost": ("outcomes_stay", tell(called("one", 30, *DEAD, call_id="k-one"))),
    "an outcome that is asked for anew": (
        "outcomes_stay",
        tell(called("two", 30, "consent_required", call_id="k-two")),
    ),
    "an outcome that came after all": ("outcomes_stay", tell(called("two", 30, call_id="k-two"))),
    "another call under its name": ("outcomes_stay", tell(called("else", 30, "consent_required", call_id="k-one"))),
    "an outcome without a record": ("outcomes_are_written", without(7, 8)),
    "an outcome that was told and not written": ("outcomes_are_written", instead(8, outcome="outcome_unknown")),
    "a request with two outcomes": (
        "outcomes_are_written",
        tell(
            said("status", 30, {"text": "write one 1"}, request="q1"),
            said("status", 31, {"code": DEAD[0]}, request="q1"),
        ),
    ),
    "two operators who were both first": (
        "answered_once",
        tell(said("deny", 30, request="q1")),
    ),
    "an intent of nobody's": ("calls_were_asked", instead(7, call_id="k-else")),
    "a request of nobody's": ("calls_were_asked", write(asked("q9", "else"))),
    "an act that nobody signed": ("calls_were_asked", write(granted("a9", "one"))),
    "a lease that nobody signed": ("calls_were_asked", write(opened("l9"))),
    "an act that is gone without a cause": (
        "granted_can_be_called",
        tell(called("three", 30, "consent_required")),
    ),
    "a lease that is open after a restart": ("restarts_keep_what_was_told", seen(leases=("l1",))),
    "an act that is forgotten": ("restarts_keep_what_was_told", seen(acts={"a1": "claimed"})),
    "calls that are forgotten": ("restarts_keep_what_was_told", seen(runs={"r1": Used(("ant", 1), 1, 7)})),
    "tokens that are forgotten": ("restarts_keep_what_was_told", seen(runs={"r1": Used(("ant", 1), 3, 6)})),
    "a call that is counted twice over a restart": ("figures_are_the_sums", seen(runs={"r1": Used(("ant", 1), 4, 7)})),
    "a call that is not counted": ("figures_are_the_sums", seen(runs={"r1": Used(("ant", 1), 2, 7)})),
    "figures that are counted twice": ("figures_are_the_sums", seen(runs={"r1": Used(("ant", 1), 3, 14)})),
    "a call that was never sent and is counted": ("figures_are_the_sums", instead(14, outcome="not_dispatched")),
    "another agent's run": ("figures_are_the_sums", seen(runs={"r1": Used(("bee", 1), 3, 7)})),
    "a run that is forgotten": ("figures_are_the_sums", seen(runs={})),
}


def test_a_good_history_is_one() -> None:
    assert [words for words in violations(written(GOOD, RECORDS)) if _of_calls(words)] == []


def test_who_takes_an_act_back_while_its_call_runs_does_not_undo_the_call() -> None:
    took = said("act_revoke", 6, {"revoked": True}, act="a1")
    good = seen(acts={"a1": "done", "a2": "claimed", "a3": "active"})(replace(GOOD, told=[*GOOD.told, took]))
    records = [*RECORDS[:8], {"kind": "act_ended", "act": "a1", "state": "revoked"}, *RECORDS[8:]]
    assert [words for words in violations(written(good, records)) if _of_calls(words)] == []
    assert {"restarts_keep_what_was_told"} == {
        words.split(":")[0] for words in violations(written(good, RECORDS)) if _of_calls(words)
    }


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_history_is_found_out(name: str) -> None:
    rule, forge = FORGERIES[name]
    assert rule in {words.split(":")[0] for words in violations(forge(GOOD))}


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _ in FORGERIES.values()} == {rule.__name__ for rule in CALL_RULES}


def test_a_lack_of_consent_with_a_cause_is_none() -> None:
    used = called("three", 29)
    forged = tell(used, called("three", 30, "consent_required"))(GOOD)
    assert not [words for words in violations(forged) if words.startswith("granted_can_be_called")]


def _of_calls(words: str) -> bool:
    return words.split(":")[0] in {rule.__name__ for rule in CALL_RULES}
