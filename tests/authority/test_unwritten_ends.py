"""A call that was carried out has its end, whatever its answer weighs and whatever the clock does meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.doors import mcp_server
from broker.doors.tools import ToolRoutes
from broker.effects.tool_servers.outcome import Done, Outcome
from broker.errors import BrokerError, Fatal, Malformed, Refused
from broker.journal.seal import Sealer
from broker.journal.segments import Position
from broker.rules.authority import closing
from broker.rules.book import LEEWAY_S
from broker.wire import frame
from broker.wire.act_records import CallEnded
from broker.wire.names import Digest
from broker.wire.records import Draft
from broker.wire.tool_results import Result
from tests.authority.table import SEND, Table
from tests.authority.test_gateway import Room
from tests.proof.cast import DEMO, A, caller

pytestmark = pytest.mark.promise("P23")

START = Position(1, 0)


@pytest.mark.parametrize(("name", "arguments"), [("send", SEND), ("list", {})])
def test_an_answer_beyond_a_payload_is_told_and_not_stored(table: Table, name: str, arguments: Any) -> None:
    """Within what a server may write: numbers and text of its JSON can be longer as they are stored."""
    if name == "send":
        table.act()
    claimed = table.call(name, arguments, call_id="one")
    for size_bytes, stored in ((frame.MAX_FRAME_BYTES + 1, 0), (frame.MAX_FRAME_BYTES, 1)):
        ended = closing.end(table.book, table.at, claim=claimed.claim, outcome="done", answer=bytes(size_bytes))
        Sealer(DEMO, 1, Digest(bytes(32)), START, START, 1 << 30).seal(table.at, ended.drafts)
        (draft,) = ended.drafts
        assert len(draft.payloads) == stored
    table.end(claimed, answer=bytes(frame.MAX_FRAME_BYTES + 1))
    assert not table.book.ledger.running
    table.check()


class Door:
    """Nobody is refused here."""

    async def limit(self, op: str, caller: Any) -> None:
        return


class Clocked:
    """A gateway whose server steps the clock while it carries a call out. made: how many calls it has seen."""

    def __init__(self, table: Table, back_s: int) -> None:
        self.table, self.room, self.made = table, Room(table), 0
        self.back_s, self.who = back_s, caller(A, table.generation())
        self.room.upstream.call = self._call  # type: ignore[method-assign]

    async def _call(self, *words: Any) -> Outcome:
        self.made += 1
        self.table.later(-self.back_s)
        return Done(b'{"content":[]}')

    async def call(self, name: str, arguments: Any) -> Result:
        return await self.room.gateway.call(self.who, name, arguments, call_id="one")


async def test_an_end_that_a_clock_set_back_refuses_is_written_once_the_clock_is_right(table: Table) -> None:
    act = table.act()
    own = Clocked(table, LEEWAY_S + 1)
    await own.room.gateway.settle()
    refused = (await own.call("s__send", SEND))["structuredContent"]
    assert refused["code"] == "in_progress"
    assert "may have been carried out" in refused["message"]
    with pytest.raises(Refused, match="clock_behind"):
        await own.call("s__send", SEND)
    assert table.count(CallEnded) == 0
    table.later(LEEWAY_S + 1)
    await own.room.gateway.settle()  # as at each tick
    assert table.last(CallEnded).outcome == "done"
    assert await own.call("s__send", SEND) == {"content": []}
    assert (own.made, table.the_act(act).state, table.count(CallEnded)) == (1, "claimed", 1)
    table.restart()
    assert [claim.outcome for claim in table.book.ledger.claims.values()] == ["done"]


@pytest.mark.parametrize("ask", ["s__send", "request_status"])
async def test_who_asks_before_the_next_tick_is_told_what_came_of_it(table: Table, ask: str) -> None:
    request = table.asked("send", SEND)
    table.approve(request)
    own = Clocked(table, LEEWAY_S + 1)
    await own.room.gateway.settle()
    await own.call("s__send", SEND)
    table.later(LEEWAY_S + 1)
    assert await own.call(ask, SEND if ask == "s__send" else {"request_id": request}) == {"content": []}
    assert (own.made, table.last(CallEnded).outcome) == (1, "done")


@pytest.mark.parametrize("failure", [Fatal("the disk refused"), Malformed("record", "too large")])
async def test_a_journal_that_fails_after_the_call_is_no_miss(table: Table, failure: BrokerError) -> None:
    """Of a tool that is not there, or a broker that is away, a client makes the call anew."""
    own = Clocked(table, 0)
    await own.room.gateway.settle()
    write = own.room.append

    def append(at: Any, drafts: Sequence[Draft], apply: Any) -> None:
        if any(isinstance(draft.fact, CallEnded) for draft in drafts):
            raise failure
        write(at, drafts, apply)

    own.room.append = append  # type: ignore[method-assign]
    routes = ToolRoutes(Door(), own.room.gateway)  # type: ignore[arg-type]
    params = {"name": "s__list", "arguments": {}}
    for result in (
        await routes.called(own.who, "s__list", {}, "", 0.0),
        await mcp_server._brokered(routes, own.who, params),
    ):
        assert result["structuredContent"]["code"] == "unavailable"
        assert "may have been carried out" in result["content"][0]["text"]
    assert own.made == 2


async def test_what_is_no_tool_is_told_as_such(table: Table) -> None:
    own = Clocked(table, 0)
    routes = ToolRoutes(Door(), own.room.gateway)  # type: ignore[arg-type]
    for name, code in (("list", "unknown_tool"), ("S!__list", "unknown_tool"), ("lease_request", "invalid_arguments")):
        result = await routes.called(own.who, name, {"minutes": 0}, "", 0.0)
        assert result["structuredContent"]["code"] == code
