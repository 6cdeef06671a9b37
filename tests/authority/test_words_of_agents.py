"""What an agent writes where the policy looks for names: in no record, unless the policy tables it as a resource."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.errors import Malformed, Reason
from broker.rules.authority import rows
from broker.rules.authority.asking import REQUEST_S
from broker.wire import bodies
from broker.wire.act_records import CallClaimed, RequestOpened
from tests.authority.table import SEND, Table
from tests.authority.test_gateway import Room
from tests.proof.cast import A, caller

MARKER = "c4n4ry-9f3c"
BY_ARGUMENT = {"s.find": {"class": "read", "account": {"pointer": "/account"}}}


def said(table: Table) -> str:
    """Every record in words, and the last refusal as the journal would have it."""
    return repr([record.fact for record in table.records])


@pytest.mark.promise("P30")
def test_an_account_that_no_policy_knows_is_in_no_record(table: Table) -> None:
    table.apply(tools=BY_ARGUMENT)
    assert table.lease_request(MARKER) == Reason.UNKNOWN_ACCOUNT
    assert table.call("find", {"account": MARKER}) == Reason.UNKNOWN_ACCOUNT
    assert MARKER not in repr(table.noted)
    assert [refusal.subject for refusal in table.noted[-2:]] == ["", "s.find"]
    assert MARKER not in said(table)


@pytest.mark.promise("P30")
def test_a_resource_stands_in_clear_and_nothing_else_of_its_call(table: Table) -> None:
    arguments = {"to": ["ann", "bob"], "text": MARKER}
    table.act("send", arguments)
    table.done("send", arguments)
    assert table.last(RequestOpened).resources == table.last(CallClaimed).resources == ("id:ann", "id:bob")
    assert MARKER not in said(table)
    assert table.call("send", {"to": [{MARKER: 1}]}) == Reason.AMBIGUOUS_OPERAND
    assert MARKER not in repr(table.noted)


@pytest.mark.parametrize("number", ["9007199254740992", "-9007199254740992", "1" + "0" * 4000])
def test_an_integer_beyond_is_an_invalid_argument_with_its_place(table: Table, number: str) -> None:
    raw = b'{"name":"s__list","arguments":{"a":[{"n":' + number.encode() + b"}]}}"
    assert table.call("list", bodies.call_body(raw).arguments) == Reason.INVALID_ARGUMENTS
    assert table.said.startswith("invalid_arguments: /a/0/n an integer beyond")
    with pytest.raises(Malformed):
        bodies.call_body(raw.replace(b'"s__list"', number.encode()))


def test_an_act_tells_what_its_call_came_to(table: Table) -> None:
    for outcome in ("done", "failed", "outcome_unknown"):
        id = table.act()
        assert _state(table, id) == "active"
        claimed = table.call("send", SEND)
        assert _state(table, id) == "claimed"
        table.end(claimed, outcome)
        assert _state(table, id) == outcome


def _state(table: Table, act: str) -> object:
    return next(row["state"] for row in rows.acts(table.book, table.at) if row["act"] == act)


async def test_a_request_that_is_overdue_is_expired_before_anybody_writes_it(table: Table) -> None:
    room = Room(table)
    await room.gateway.settle()
    table.call("note", {})
    request = table.asked("read")
    who = caller(A, table.generation())
    for later_s, state in ((REQUEST_S - 1, "pending"), (1, "expired")):
        table.later(later_s)
        told = await room.gateway.call(who, "request_status", {"request_id": request})
        assert told["structuredContent"]["state"] == state
        assert rows.request(table.book, table.book.ledger.requests[request], table.at)["state"] == state


@pytest.mark.parametrize("quick", [True, False])
async def test_lease_request_waits_for_the_operator_as_a_call_does(table: Table, quick: bool) -> None:
    room = Room(table)
    await room.gateway.settle()
    table.call("note", {})
    waits: list[float] = []

    async def wait(cn: Any, timeout_s: float, mark: int | None = None) -> None:
        waits.append(timeout_s)
        if quick:
            (request,) = table.book.ledger.requests
            table.lease("mail", request=request)
        else:
            await asyncio.sleep(timeout_s)

    room.wait = wait  # type: ignore[method-assign]
    who = caller(A, table.generation())
    wait_s = 30.0 if quick else 0.01
    told = await room.gateway.call(who, "lease_request", {"account": "mail"}, wait_s=wait_s)
    assert waits
    assert told["structuredContent"].get("state", told["structuredContent"].get("code")) == (
        "approved" if quick else "consent_required"
    )
    assert bool(table.book.ledger.leases) is quick
