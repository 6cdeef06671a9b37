"""What an agent asks of its own things: told whole whenever the answer comes, and to who it is at that moment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.errors import Reason, Refused
from broker.rules import admin
from broker.rules.authority import own_calls
from broker.wire.caller import Caller
from broker.wire.tool_results import Result
from tests.authority.table import Table
from tests.authority.test_gateway import Room
from tests.proof.cast import A, caller


async def asked(table: Table, answers: Any, **arguments: Any) -> Result:
    """A lease_request that waits; answers: what the operator does meanwhile."""
    room = Room(table)
    await room.gateway.settle()

    async def wait(cn: Any, timeout_s: float, mark: int | None = None) -> None:
        (request,) = table.book.ledger.requests
        answers(request)

    room.wait = wait  # type: ignore[method-assign]
    who = caller(A, table.generation())
    return await room.gateway.call(who, "lease_request", {"account": "mail", **arguments}, wait_s=5 if answers else 0)


@pytest.mark.promise("P21")
@pytest.mark.parametrize(("minutes", "signed_s", "effective_s"), [(1440, 90, 90), (1, 90, 60), (1440, 20, 20)])
async def test_what_became_of_minutes_is_told_with_the_answer_that_was_waited_for(
    table: Table, minutes: int, signed_s: int, effective_s: int
) -> None:
    table.done("list")
    result = await asked(table, lambda request: table.lease(seconds=signed_s, request=request), minutes=minutes)
    (lease,) = table.book.ledger.leases.values()
    told = result["structuredContent"]
    assert (told["state"], told["deprecated"], told["effective_seconds"]) == ("approved", "minutes", effective_s)
    assert lease.seconds == effective_s
    assert json.loads(result["content"][0]["text"]) == told


@pytest.mark.promise("P21")
@pytest.mark.parametrize(("more", "effective_s"), [({"minutes": 1440}, 90), ({"minutes": 1}, 60), ({}, None)])
async def test_and_with_the_one_that_only_says_that_consent_is_lacking(
    table: Table, more: dict[str, int], effective_s: int | None
) -> None:
    result = await asked(table, None, **more)
    told = result["structuredContent"]
    assert result["isError"] is True
    assert (told["code"], told.get("effective_seconds"), "deprecated" in told) == (
        "consent_required", effective_s, bool(more),
    )  # fmt: skip
    assert json.loads(result["content"][0]["text"]) == told


@pytest.mark.promise("P16")
@pytest.mark.parametrize("why", ["enrolled anew", "paused", "revoked"])
def test_who_was_shut_out_after_the_door_let_it_in_gives_no_lease_back_and_is_told_nothing(
    table: Table, why: str
) -> None:
    """The door looks once; what it lets in may wait for its turn."""
    former, request = caller(A, table.generation()), table.asked("read")
    table.deny(request)
    if why == "enrolled anew":
        table.enrol(A)
        table.done("list")
    lease = table.lease()
    if why == "paused":
        table.take(admin.pause(table.book, table.at, order=table.order("agent_pause"), cn=A))
    if why == "revoked":
        table.revoke(A)
    barred = {"enrolled anew": Reason.GENERATION_STALE, "paused": Reason.AGENT_PAUSED, "revoked": Reason.AGENT_REVOKED}
    assert released(table, former) == barred[why]
    assert table.take(own_calls.status(table.book, table.at, caller=former, id=request)) == barred[why]
    assert request not in table.book.looked_at
    if why == "enrolled anew":
        assert lease in table.book.ledger.leases
        assert released(table, caller(A, table.generation())) is True
        assert lease not in table.book.ledger.leases


def released(table: Table, who: Caller) -> Any:
    return table.take(own_calls.release(table.book, table.at, caller=who, account="mail"))


@pytest.mark.promise("P16")
async def test_nor_past_the_door_of_the_gateway(table: Table) -> None:
    room, former = Room(table), caller(A, table.generation())
    await room.gateway.settle()
    table.enrol(A)
    for name, word in (("lease_release", "account"), ("request_status", "request_id")):
        with pytest.raises(Refused, match="generation_stale"):
            await room.gateway.call(former, name, {word: "mail"})
