"""What came of a request once it was answered, to the operator and its agent; what an agent is told while it waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import Malformed, Reason
from broker.rules.authority import orders, own_calls, rows
from broker.rules.authority.entries import Claim
from broker.wire import own_tools, tool_results
from lever.agent.mcp.calls import Desk
from tests.authority.table import SEND, Table, tool
from tests.proof.cast import FIRST_ALONE, SECOND_KEY, A, caller

KEPT = "the lease keeps its last operation for the read that asked first"


def revoke(table: Table, act: str) -> None:
    assert table.take(orders.revoke_act(table.book, table.at, order=table.order("act_revoke"), id=act)) is True


def call(table: Table, outcome: str = "") -> None:
    claimed = table.call("send", SEND)
    if outcome:
        table.end(claimed, outcome)


CAME: dict[str, Callable[[Table, str], Any]] = {
    "approved": lambda t, act: None,
    "expired": lambda t, act: t.later(600),
    "revoked": revoke,
    "invalidated": lambda t, act: t.see(tool("send", description="Another.")),
    "claimed": lambda t, act: call(t),
    "done": lambda t, act: call(t, "done"),
    "failed": lambda t, act: call(t, "failed"),
    "outcome_unknown": lambda t, act: call(t, "outcome_unknown"),
}


@pytest.mark.parametrize("state", CAME)
def test_a_request_that_was_approved_shows_what_came_of_its_act(table: Table, state: str) -> None:
    request = table.asked("send", SEND)
    act = table.approve(request)
    CAME[state](table, act)
    (row,) = rows.requests(table.book, table.at)
    assert (row["state"], row["answer"]) == (state, act)
    assert rows.asked(table.book, table.book.ledger.requests[request], table.at)["state"] == state
    (of_act,) = rows.acts(table.book, table.at)
    assert of_act["state"] == ("active" if state == "approved" else state)
    assert rows.requests(table.book, table.at, everything=False) == []
    told = table.take(own_calls.status(table.book, table.at, caller=caller(A, table.generation()), id=request))
    if not isinstance(told, Claim):  # whose result is told instead
        assert told["structuredContent"]["state"] == ("running" if state == "claimed" else state)


def test_an_act_that_was_never_sent_waits_again_and_a_denied_request_stays_denied(table: Table) -> None:
    request = table.asked("send", SEND)
    table.approve(request)
    call(table, "not_dispatched")
    other = table.asked("ask", SEND)
    table.deny(other)
    table.later(1)
    assert {row["request"]: row["state"] for row in rows.requests(table.book, table.at)} == {
        request: "approved", other: "denied",
    }  # fmt: skip


def test_a_key_that_is_taken_away_shows_in_the_request_that_it_answered(table: Table) -> None:
    table.approve(table.asked("send", SEND), SECOND_KEY)
    table.uphold(FIRST_ALONE)
    assert [row["state"] for row in rows.requests(table.book, table.at)] == ["invalidated"]


@pytest.mark.parametrize(("name", "arguments", "is_kept"), [("read", {}, True), ("send", SEND, False)])
def test_who_asks_by_a_read_hears_that_an_operation_is_kept_for_it(
    table: Table, name: str, arguments: Any, is_kept: bool
) -> None:
    told = tool_results.consent_required(table.call(name, arguments).request, False)["structuredContent"]
    assert (KEPT in told["retry"]) is is_kept


def test_a_lease_that_no_read_asked_for_keeps_nothing(table: Table) -> None:
    told = tool_results.consent_required(table.lease_request().request, False)["structuredContent"]
    assert (told["regime"], "keeps" in told["retry"]) == ("lease", False)


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("id", {}, "/to can't be read as an id: expected a text, found an object"),
        ("path", 7, "/to can't be read as a path: expected a text, found a number"),
        ("host", "a b", "/to can't be read as a host: has a space"),
    ],
)
def test_an_operand_that_can_not_be_read_is_told_in_a_sentence(table: Table, kind: str, value: Any, why: str) -> None:
    table.apply(tools={"s.send": {"class": "mutation", "resources": [{"pointer": "/to", "kind": kind}]}})
    assert table.call("send", {"to": value}) == Reason.AMBIGUOUS_OPERAND
    assert table.said.startswith(f"ambiguous_operand: {why}")


def test_a_name_that_no_tool_can_have_is_one_miss_and_leads_to_the_list() -> None:
    none: Any = None
    with pytest.raises(Malformed) as of_broker:
        own_tools.parse("nothing", {})
    with pytest.raises(Malformed) as beside_agent:
        Desk(none, none, none, none).call("x" * 300, {}, "", 0)
    assert str(of_broker.value) == str(beside_agent.value) == f"tool: {tool_results.NO_SUCH_TOOL}"
    assert "the list of tools" in tool_results.NO_SUCH_TOOL
