"""The gateway between rules and servers: how fresh its knowledge of tools is, and by which clock a lease counts."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from broker.effects.tool_servers.look import Look
from broker.effects.tool_servers.outcome import Done, Holder, NotSent, Outcome
from broker.errors import Refused, Unavailable
from broker.gateway import LOOK_S, Gateway, gateway_of
from broker.rules.authority import rows
from broker.turn import Turn
from broker.wire.act_records import CallEnded, LeaseClosed, LeaseOpened, ToolChanged
from broker.wire.catalogue import PinnedTool, listing
from broker.wire.records import BrokerStarted, Draft
from broker.wire.server_identity import NOBODY
from broker.wire.verified import Standing
from tests.authority.desk import code
from tests.authority.table import STARTED, TOOLS, Table
from tests.proof.cast import A, caller


class Upstream:
    """A server whose list and answers the test gives. asked: how often its tools were listed."""

    def __init__(self) -> None:
        self.tools: list[Any] = [one.definition for one in TOOLS]
        self.asked = 0
        self.seen: Look | None = None
        self.changes = 0
        self.looking = asyncio.Lock()
        self.calls: list[bytes] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.away = False

    async def call(self, holder: Holder, tool: PinnedTool, arguments: bytes, timeout_s: float, /) -> Outcome:
        self.calls.append(arguments)
        return Done(b'{"content":[]}')

    def changed(self) -> None:
        self.changes += 1
        self.seen = None

    def looked(self, holder: Holder | None, server: str, /) -> Look | None:
        return self.seen

    async def look(self, holder: Holder | None, server: str, at: float, since: float, /) -> Look:
        async with self.looking:
            if self.seen and self.seen.at > since:
                return self.seen
            self.asked += 1
            found, before = listing("s", NOBODY, self.tools), self.changes
            await asyncio.sleep(0)
            self.meanwhile()
            if self.away:
                raise NotSent("s: it can't be started")
            look = Look(at, found)
            self.seen = look if self.changes == before else None
            return look

    async def stop(self) -> None:
        return


class Room:
    """A gateway over the rules' own table; boot_s is the clock that counts suspend."""

    def __init__(self, table: Table) -> None:
        self.table, self.upstream, self.boot_s = table, Upstream(), 1000.0
        numbers = itertools.count()
        self.gateway = Gateway(
            Turn(table.book, self), table.bytes.__getitem__, STARTED, self.upstream, ("s",), lambda: table.at,
            lambda: self.boot_s, lambda: f"{next(numbers):032x}", self.standing, self, asyncio.ensure_future,
        )  # fmt: skip

    def append(self, at: Any, drafts: Sequence[Draft], apply: Any) -> None:
        for draft in drafts:
            self.table.write(draft.fact, draft.payloads)

    def durable(self) -> Awaitable[None]:
        return asyncio.sleep(0)

    async def standing(self) -> Standing:
        return self.table.standing

    def mark(self, cn: Any) -> int:
        return 0

    async def wait(self, cn: Any, timeout_s: float, mark: int | None = None) -> None:
        raise AssertionError("nothing here waits")

    async def call(self, name: str, arguments: Any = None) -> str:
        who = caller(A, self.table.generation())
        try:
            return code(await self.gateway.call(who, name, {} if arguments is None else arguments))
        except Refused as refused:
            return str(refused.reason)


async def until(true: Callable[[], bool]) -> None:
    """Within a few rounds of the loop, or never."""
    for _ in range(100):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come")


@pytest.fixture
async def room(table: Table) -> Room:
    made = Room(table)
    await made.gateway.settle()  # as a broker does before anybody calls
    return made


@pytest.mark.promise("P22")
async def test_a_server_that_says_nothing_of_a_change_is_looked_at_again_all_the_same(room: Room) -> None:
    assert await room.call("s__list") == ""
    room.upstream.tools = [one | {"description": "Changed."} for one in room.upstream.tools]
    room.boot_s += LOOK_S - 0.1
    assert await room.call("s__list") == ""
    assert room.upstream.asked == 1
    room.boot_s += 0.1
    assert await room.call("s__list") == "tool_changed"
    assert room.table.count(ToolChanged) == len(TOOLS)
    assert len(room.upstream.calls) == 2


@pytest.mark.promise("P22")
async def test_a_change_while_the_list_is_read_is_not_missed(room: Room) -> None:
    room.upstream.meanwhile = room.upstream.changed
    assert await room.call("s__list") == "server_unavailable"
    room.upstream.meanwhile = lambda: None
    assert await room.call("s__list") == ""
    assert room.upstream.asked == 2


@pytest.mark.promise("P22")
async def test_a_change_after_the_list_was_read_is_not_missed_either(room: Room) -> None:
    """It comes while the operator's keys are looked at."""
    assert await room.call("s__list") == ""

    async def standing() -> Standing:
        room.upstream.changed()
        return room.table.standing

    room.gateway.standing = standing
    assert await room.call("s__list") == "server_unavailable"
    assert len(room.upstream.calls) == 1


@pytest.mark.promise("P22")
async def test_what_cannot_be_listed_or_read_is_not_called(room: Room) -> None:
    room.upstream.away = True
    assert await room.call("s__list") == "server_unavailable"
    room.upstream.away = False
    assert await room.call("s__list") == ""
    room.upstream.away = True
    with pytest.raises(Unavailable):
        await room.gateway.listing("s")
    room.boot_s += LOOK_S
    assert await room.call("s__list") == "server_unavailable", "what was seen once does not count for ever"


@pytest.mark.promise("P22")
@pytest.mark.parametrize("bad", [
    {"name": "list", "inputSchema": {"type": "object"}, "description": "\u202e"},
    {"name": "list", "inputSchema": {"type": "object"}, "description": 7},
    {"name": "list"},
    {"name": "list", "description": "Does list.", "inputSchema": {"type": "object"}},
])  # fmt: skip
async def test_one_definition_that_must_not_be_accepted_shuts_its_tool_alone(room: Room, bad: Any) -> None:
    """The last is the accepted one: then two have the name."""
    if len(bad) == 3 and bad["description"] == "Does list.":
        room.upstream.tools.append(bad)
    else:
        room.upstream.tools = [bad if one["name"] == "list" else one for one in room.upstream.tools]
    room.table.opened()
    assert await room.call("s__read") == ""
    assert await room.call("s__list") == "tool_changed"
    (changed,) = room.table.facts(ToolChanged)
    assert (changed.tool, changed.seen_digest) == ("list", bytes(32))
    listed = rows.tools(room.table.book, "s", await room.gateway.listing("s"))
    (row,) = [row for row in listed if row["tool"] == "s.list"]
    assert (row["state"], row["definition"], row["accepted_digest"] is None) == ("unacceptable", None, False)
    assert row["why"].isascii()
    assert {row["state"] for row in listed} == {"accepted", "unacceptable"}


@pytest.mark.promise("P22")
async def test_a_call_that_is_refused_anyway_starts_no_server_and_one_that_goes_on_looks_once(room: Room) -> None:
    for name, why in (("s__drop", "denied_by_rule"), ("s__unlisted", "denied_by_default")):
        assert await room.call(name) == why
    assert await room.call("s__list", []) == "invalid_arguments"
    assert room.upstream.asked == 0
    assert await room.call("s__ask") == "consent_required", "nobody is asked about what the server does not define"
    assert room.upstream.asked == 1
    for _ in range(3):
        assert await room.call("s__list") == ""
    assert room.upstream.asked == 1, "a warm call costs nothing more"


async def test_calls_that_come_together_look_once(room: Room) -> None:
    answers = await asyncio.gather(*(room.call("s__list") for _ in range(5)))
    assert (answers, room.upstream.asked) == ([""] * 5, 1)


async def test_a_tool_that_is_not_accepted_starts_no_server(room: Room) -> None:
    for name in ("s__nothing", "other__list"):
        assert await room.call(name) == "unknown_tool"
    assert room.upstream.asked == 0


@pytest.mark.promise("P21")
async def test_a_lease_counts_from_just_before_its_first_read_though_the_wall_clock_stands(room: Room) -> None:
    """As when the machine is suspended right after it, and its wall clock set back."""
    room.table.opened()
    room.gateway.elapsed_s()
    room.boot_s += 50
    assert await room.call("s__read") == ""
    room.boot_s += 89.9
    assert await room.call("s__read") == ""
    room.boot_s += 0.1
    assert await room.call("s__read") == "consent_required"
    await room.gateway.lapse()
    assert room.table.last(LeaseClosed).reason == "time"
    assert len(room.upstream.calls) == 2


@pytest.mark.promise("P21")
async def test_and_is_never_begun_too_late_because_nobody_looked(room: Room) -> None:
    room.table.opened()
    assert await room.call("s__read") == ""
    room.boot_s += 90  # not one tick in between
    assert await room.call("s__read") == "consent_required"


@pytest.mark.promise("P21")
async def test_a_suspended_machine_makes_no_lease_wait_longer_for_its_first_read(room: Room) -> None:
    for suspended_s, answer in ((59.9, ""), (60, "consent_required")):
        room.table.opened()
        room.gateway.heard([room.table.last(LeaseOpened)])
        room.boot_s += suspended_s
        assert await room.call("s__read") == answer
        room.table.later(90)
        await room.gateway.lapse()


@pytest.mark.promise("P21")
@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="no clock that counts suspend")
async def test_a_lease_goes_on_while_the_machine_is_suspended(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the daemon itself: of all that the system has it takes the one that goes on."""
    suspended_s, read = 0.0, time.clock_gettime
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: read(clock) + (suspended_s if clock == time.CLOCK_BOOTTIME else 0)
    )
    none: Any = None
    own = gateway_of(SimpleNamespace(servers={}), *[none] * 6)  # type: ignore[arg-type]
    room.gateway.boottime = own.boottime
    id = room.table.opened()
    assert await room.call("s__read") == ""
    suspended_s = 50
    assert await room.call("s__read") == ""
    assert 50 <= room.gateway.elapsed_s()[id] < 90
    suspended_s = 90
    assert await room.call("s__read") == "consent_required"


@pytest.mark.promise("P21")
async def test_a_start_closes_each_lease_by_a_record_before_its_own_and_only_once(table: Table) -> None:
    id = table.opened()
    table.done("read")
    table.later(3)
    room = Room(table)
    await asyncio.gather(room.gateway.settle(), room.gateway.settle())
    assert [record.fact for record in table.records[-2:]] == [LeaseClosed(id, "restart", 1, 3), STARTED]
    assert table.count(BrokerStarted) == 1


@pytest.mark.promise("P23")
async def test_a_caller_who_is_cancelled_ends_no_call(room: Room) -> None:
    going = asyncio.Event()

    async def slow(*words: Any) -> Outcome:
        await going.wait()
        return Done(b'{"content":[]}')

    room.upstream.call = slow  # type: ignore[method-assign]
    task = asyncio.ensure_future(room.call("s__list"))
    await until(lambda: bool(room.table.book.ledger.running))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    going.set()
    await until(lambda: not room.table.book.ledger.running)
    assert room.table.last(CallEnded).outcome == "done"


@pytest.mark.promise("P23")
async def test_a_fault_of_the_gateways_own_is_an_unknown_outcome(room: Room) -> None:
    async def broken(*words: Any) -> Outcome:
        raise RuntimeError("of no kind that is known")

    room.upstream.call = broken  # type: ignore[method-assign]
    assert await room.call("s__list") == "outcome_unknown"
    assert room.table.last(CallEnded).outcome == "outcome_unknown"
