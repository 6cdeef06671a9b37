"""Requests that nobody approves fill no memory: a call names so many targets, and an ended request remembers none."""

from __future__ import annotations

import pytest

from broker.errors import Reason
from broker.rules.authority import rows
from broker.rules.authority.judge import MAX_RESOURCES
from broker.wire.records import RequestRefused
from tests.authority.table import SEND, Table
from tests.proof.cast import A, B

pytestmark = pytest.mark.promise("P20")


def to(count: int) -> dict[str, list[str]]:
    return {"to": [f"person-{number}" for number in range(count)]}


def test_a_call_names_so_many_targets_and_one_more_is_refused_with_words(table: Table) -> None:
    assert table.asked("send", to(MAX_RESOURCES))
    assert table.call("send", to(MAX_RESOURCES + 1)) == Reason.INVALID_ARGUMENTS
    assert f"more than {MAX_RESOURCES}: divide the call" in table.said
    assert isinstance(table.noted[-1], RequestRefused)
    assert table.tool_call("send", to(MAX_RESOURCES + 1)) == Reason.INVALID_ARGUMENTS


@pytest.mark.parametrize("how", ["denied", "expired", "void"])
def test_a_request_that_ended_without_approval_remembers_no_target(table: Table, how: str) -> None:
    request = table.asked("send", to(300))
    if how == "denied":
        table.deny(request)
    elif how == "expired":
        table.later(600)
        table.lapse()
    else:
        table.revoke(A)
    known = table.book.ledger.requests[request]
    assert (known.resources, known.args) == ((), b"")
    table.check()


def test_an_approved_one_keeps_what_was_signed(table: Table) -> None:
    act = table.act()
    assert table.the_act(act).resources == ("id:ann",)


def test_what_is_settled_is_listed_on_demand(table: Table) -> None:
    denied = table.asked("send", SEND)
    table.deny(denied)
    overdue = table.asked("ask", {})
    table.later(600)
    waits = table.asked("ask", {"n": 1}, cn=B)
    assert [row["request"] for row in rows.requests(table.book, table.at, everything=False)] == [waits]
    assert [row["request"] for row in rows.requests(table.book, table.at)] == [denied, overdue, waits]


def test_requests_are_found_by_their_agent_until_they_are_forgotten(table: Table) -> None:
    mine, other = table.asked("send", SEND), table.asked("send", SEND, cn=B)
    ledger, who = table.book.ledger, (A, table.generation())
    assert [one.request for one in ledger.requests_of(*who)] == [mine]
    assert [one.request for one in table.read_again().ledger.requests_of(*who)] == [mine]
    table.enrol(A)
    assert not list(ledger.requests_of(A, table.generation()))
    table.deny(other)
    table.later(48 * 3600 + 61)
    table.done("list")
    assert not ledger.requests
    assert not ledger.asked_by
