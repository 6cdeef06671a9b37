"""Asking the operator: once for the same call, only when nothing else is in the way, a few at a time, and not again
what was just refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import Reason
from broker.rules import admin
from broker.rules.authority import orders
from broker.rules.authority.asking import MAX_PENDING, ConsentRequired
from broker.rules.authority.passage import Claimed
from broker.wire.act_records import RequestEnded, RequestOpened
from tests.authority.table import SEND, Table
from tests.proof.cast import A, B, operator

pytestmark = pytest.mark.promise("P20")


def flood(table: Table, cn: Any = A) -> list[str]:
    return [table.asked("send", {"to": [str(number)]}, cn=cn) for number in range(MAX_PENDING)]


def test_the_same_call_asks_once(table: Table) -> None:
    first = table.asked("send", SEND)
    for arguments in (SEND, dict(reversed(SEND.items()))):
        assert table.asked("send", arguments) == first
    assert table.asked("send", SEND, cn=B) != first
    assert table.asked("ask", SEND) != first


def test_all_reads_of_an_account_ask_for_one_lease(table: Table) -> None:
    assert len({table.asked(name, {"id": number}) for name in ("read", "find") for number in range(5)}) == 1
    assert table.lease_request().request.request == table.asked("read")


def test_eight_wait_and_a_ninth_is_refused_until_one_is_over(table: Table) -> None:
    waiting = flood(table)
    for call in (("send", {"to": ["one more"]}), ("ask", {}), ("read", {})):
        assert table.call(*call) == Reason.TOO_MANY_PENDING
    assert table.lease_request() == Reason.TOO_MANY_PENDING
    assert table.asked("send", {"to": ["0"]}) == waiting[0], "what waits already is no ninth"
    table.asked("send", SEND, cn=B)
    table.done("list")
    table.approve(waiting[0])
    table.asked("send", {"to": ["one more"]})
    table.later(600)
    flood(table)


def test_what_was_refused_in_the_last_ten_minutes_counts_as_if_it_still_waited(table: Table) -> None:
    """Ever new requests bother the operator eight times in ten minutes, however often they say no."""
    first, *others = flood(table)
    table.deny(first)
    table.later(100)
    for request in others:
        assert table.call("send", {"to": ["new"]}) == Reason.TOO_MANY_PENDING
        assert table.lease_request() == Reason.TOO_MANY_PENDING
        table.deny(request)
    table.restart()
    table.asked("send", SEND, cn=B)
    table.later(499.999)
    assert table.call("send", {"to": ["new"]}) == Reason.TOO_MANY_PENDING
    table.later(0.001)
    table.asked("send", {"to": ["new"]})
    assert table.call("send", {"to": ["another"]}) == Reason.TOO_MANY_PENDING
    table.later(100)
    table.asked("send", {"to": ["another"]})


def test_it_lives_ten_minutes_and_then_is_no_answer_to_anything(table: Table) -> None:
    request = table.asked("send", SEND)
    table.later(599.999)
    assert table.asked("send", SEND) == request
    table.later(0.001)
    assert table.approve(request) == Reason.ALREADY_RESOLVED
    assert table.deny(request) == Reason.ALREADY_RESOLVED
    assert table.asked("send", SEND) != request
    assert table.lapse() == (A,)
    assert table.last(RequestEnded).request == request
    assert table.book.ledger.requests[request].state == "expired"


@pytest.mark.parametrize("name", ["send", "read"])
def test_what_was_denied_cannot_be_asked_again_for_ten_minutes(table: Table, name: str) -> None:
    request = table.asked(name, SEND)
    assert table.deny(request, "not to her").request == request
    for _ in range(3):
        assert table.call(name, SEND) == Reason.REQUEST_DENIED
        assert "not to her" in table.said
        table.later(199.999)
    if name == "read":
        assert table.lease_request() == Reason.REQUEST_DENIED, "nor by the other way to ask"
    table.apply(tools={"s.send": {"class": "mutation", "account": "mail"}})
    assert table.call(name, SEND) == Reason.REQUEST_DENIED, "however the policy sees it now"
    table.asked(name, SEND, cn=B)
    table.later(0.003)
    table.asked(name, SEND)


def test_the_first_of_two_operators_answers_and_the_second_hears_so(table: Table) -> None:
    approved, denied = table.asked("send", SEND), table.asked("send", {"to": ["bob"]})
    table.approve(approved)
    table.deny(denied)
    for request in (approved, denied):
        assert table.approve(request) == Reason.ALREADY_RESOLVED
        assert table.deny(request) == Reason.ALREADY_RESOLVED
    assert len(table.book.ledger.acts) == 1
    lease = table.asked("read")
    table.lease(request=lease)
    assert table.lease(request=lease) == Reason.ALREADY_RESOLVED


def test_an_answer_of_the_other_kind_is_refused(table: Table) -> None:
    act, lease = table.asked("send", SEND), table.asked("read")
    assert table.lease(request=act) == Reason.APPROVAL_DIFFERS
    assert table.approve(lease) == Reason.APPROVAL_DIFFERS


def test_a_request_that_is_not_there_is_no_request(table: Table) -> None:
    assert table.deny("0" * 32) == Reason.UNKNOWN_REQUEST
    assert table.lease(request="0" * 32) == Reason.UNKNOWN_REQUEST


@pytest.mark.parametrize(("name", "arguments", "reason"), [
    ("drop", {}, Reason.DENIED_BY_RULE), ("unlisted", {}, Reason.DENIED_BY_DEFAULT),
    ("nothing", {}, Reason.UNKNOWN_TOOL), ("send", {"text": "x"}, Reason.MISSING_RESOURCE),
    ("send", {"to": [{"a": 1}]}, Reason.AMBIGUOUS_OPERAND), ("send", [], Reason.INVALID_ARGUMENTS),
])  # fmt: skip
def test_nobody_is_asked_for_what_would_be_refused_anyway(
    table: Table, name: str, arguments: Any, reason: Reason
) -> None:
    assert table.call(name, arguments) == reason
    assert table.count(RequestOpened) == 0


def stop_run(table: Table) -> None:
    table.take(orders.stop_run(table.book, table.at, order=table.order("run_stop"), run=table.run().run))


NOW_REFUSED: dict[str, tuple[Reason, Callable[[Table], Any]]] = {
    "a rule denies it": (Reason.DENIED_BY_RULE, lambda t: t.apply(tiers={"allowed": [], "denied": ["*.*"]})),
    "it is in no list": (Reason.DENIED_BY_DEFAULT, lambda t: t.apply(tiers={"allowed": ["s.list"]})),
    "its run is over": (Reason.RUN_STOPPED, stop_run),
    "its budget is used up": (Reason.BUDGET_EXCEEDED, lambda t: t.apply(budgets={"max_tool_calls": 0})),
}
WAITING: dict[str, Callable[[Table], str]] = {
    "an act": lambda t: t.asked("send", SEND),
    "a lease, by a read": lambda t: t.asked("read"),
    "a lease, by itself": lambda t: str(t.lease_request().request.request),
}


@pytest.mark.parametrize("why", NOW_REFUSED)
@pytest.mark.parametrize("what", WAITING)
def test_what_would_now_be_refused_is_not_granted_and_nobody_is_asked_for_it_any_longer(
    table: Table, what: str, why: str
) -> None:
    reason, change = NOW_REFUSED[why]
    if (what, why) == ("a lease, by itself", "a rule denies it"):
        reason = Reason.DENIED_BY_DEFAULT  # which rule it is depends on the tool
    request = WAITING[what](table)
    change(table)
    answer = table.approve(request) if what == "an act" else table.lease(request=request)
    assert answer == reason
    assert table.last(RequestEnded) == RequestEnded(request, reason)
    assert table.book.ledger.requests[request].state == "invalidated"
    assert not table.book.ledger.acts
    assert not table.book.ledger.leases
    table.check()


def stop(table: Table) -> None:
    table.take(orders.stop_all(table.book, table.at, request=operator("stop")))


def lift(table: Table) -> None:
    table.take(orders.lift_stop(table.book, table.at, order=table.order("resume_all")))


def pause(table: Table) -> None:
    table.take(admin.pause(table.book, table.at, order=table.order("agent_pause"), cn=A))


def resume(table: Table) -> None:
    table.take(admin.resume(table.book, table.at, order=table.order("agent_resume"), cn=A))


@pytest.mark.parametrize("what", WAITING)
@pytest.mark.parametrize(("reason", "sets", "lifts"), [
    (Reason.EMERGENCY_STOP, stop, lift),
    (Reason.AGENT_PAUSED, pause, resume),
])  # fmt: skip
def test_what_the_operator_alone_has_set_is_in_the_way_and_ends_no_request(
    table: Table, what: str, reason: Reason, sets: Callable[[Table], None], lifts: Callable[[Table], None]
) -> None:
    request = WAITING[what](table)

    def answered() -> Any:
        return table.approve(request) if what == "an act" else table.lease(request=request)

    sets(table)
    assert answered() == reason
    assert table.count(RequestEnded) == 0
    assert not table.book.ledger.acts
    assert not table.book.ledger.leases
    lifts(table)
    assert answered() in {**table.book.ledger.acts, **table.book.ledger.leases}
    table.check()


@pytest.mark.parametrize(("entry", "reason"), [
    ({"rules": [{"pointer": "/text", "max_length": 2}]}, Reason.DENIED_BY_ARGUMENT),
    ({"account": "other"}, Reason.APPROVAL_DIFFERS),
    ({"resources": [{"pointer": "/text", "kind": "id"}]}, Reason.APPROVAL_DIFFERS),
    ({"resources": [{"pointer": "/cc", "kind": "id"}]}, Reason.MISSING_RESOURCE),
])  # fmt: skip
def test_nor_what_the_policy_sees_otherwise_since(table: Table, entry: dict[str, Any], reason: Reason) -> None:
    request = table.asked("send", SEND)
    table.apply(accounts={"other": {}}, tools={"s.send": {"class": "mutation", "account": "mail"} | entry})
    assert table.approve(request) == reason
    assert table.book.ledger.requests[request].state == "invalidated"


def test_nor_a_lease_for_what_needs_an_act_by_now(table: Table) -> None:
    request = table.asked("read")
    table.apply(tools={"s.read": {"class": "mutation", "account": "mail"}})
    assert table.lease(request=request) == Reason.APPROVAL_DIFFERS
    assert not table.book.ledger.leases


@pytest.mark.parametrize("change", [
    {"tiers": {"allowed": ["s.send"]}}, {"budgets": {"max_tool_calls": 9}}, {"budgets": {"max_output_tokens": 9}},
])  # fmt: skip
def test_a_policy_that_is_looser_or_unrelated_and_figures_that_are_late_end_no_request(
    table: Table, change: dict[str, Any]
) -> None:
    table.done("list")
    request = table.asked("send", SEND)
    table.apply(**change)
    table.later(61)
    assert table.approve(request) in table.book.ledger.acts


@pytest.mark.parametrize("end", ["enrol", "revoke"])
def test_an_enrolment_that_is_over_takes_its_requests_with_it(table: Table, end: str) -> None:
    request = table.asked("send", SEND)
    getattr(table, end)(A)
    assert table.book.ledger.requests[request].state == "invalidated"
    assert isinstance(table.approve(request), Reason)
    assert isinstance(table.approve(request, target={"generation": 2}), Reason)


def test_a_policy_that_sees_the_call_otherwise_asks_anew_while_the_first_still_waits(table: Table) -> None:
    first = table.asked("send", SEND)
    table.apply(tools={"s.send": {"class": "mutation", "account": "mail"}})
    second = table.asked("send", SEND)
    assert second != first
    table.approve(second)
    table.done("send", SEND)


def test_nothing_is_approved_by_waiting(table: Table) -> None:
    request = table.asked("send", SEND)
    for _ in range(20):
        table.later(60)
        table.lapse()
        assert not isinstance(table.call("send", SEND), Claimed)
    assert table.book.ledger.requests[request].state == "expired"
    assert not table.book.ledger.acts


def test_requests_are_there_after_a_restart(table: Table) -> None:
    request = table.asked("send", SEND)
    table.restart()
    assert table.book.ledger.requests[request].args == b'{"text":"hello","to":["ann"]}'
    table.approve(request)
    table.done("send", SEND)


def test_a_denial_and_its_note_are_there_after_a_restart(table: Table) -> None:
    table.deny(table.asked("send", SEND), "not to her")
    table.restart()
    assert table.call("send", SEND) == Reason.REQUEST_DENIED
    assert "not to her" in table.said


def test_a_second_call_for_another_act_does_not_take_the_first_ones_answer(table: Table) -> None:
    table.act("ask", {"n": 1})
    answer = table.call("ask", {"n": 2})
    assert isinstance(answer, ConsentRequired)
    assert answer.other_arguments
