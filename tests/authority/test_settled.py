"""A settled request: its agent is told the id, once, and nobody else, and never so many that it could flood."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.doors.agent import AgentDoor
from broker.effects.channels import InboxChannel
from broker.effects.outbox import MOST_REQUESTS, Outbox, Ways
from broker.errors import Reason
from broker.rules import consume
from broker.rules.authority import orders, settled
from broker.rules.authority.asking import MAX_PENDING
from broker.rules.authority.passage import Claimed
from broker.rules.decision import Decision
from broker.rules.rates import TokenBucket
from broker.turn import Turn
from broker.wire.names import Cn, DirectiveId, Instant
from broker.wire.pointer import About
from broker.wire.records import DirectiveAdmitted, PointerDelivered, PointerFailed, Record
from broker.wire.statement import Approval, BoundAction, Instruction
from tests.authority.table import SEND, TOOLS, Table, tool
from tests.effects.stage import ScriptedChannel
from tests.fakes.fake_scheduler import FakeScheduler, settle
from tests.proof.cast import A, caller, operator

pytestmark = pytest.mark.promise("P9", "P11", "P20")


class Pane(ScriptedChannel):
    """Keeps what the id was said to be of."""

    def __init__(self, *fail: str) -> None:
        super().__init__(fail=list(fail))
        self.abouts: list[tuple[str, About]] = []

    async def deliver(self, cn: Cn, id: DirectiveId, about: About = About.DIRECTIVE) -> None:
        self.abouts.append((id, about))
        await super().deliver(cn, id, about)


class Told:
    """The rules' own table, with an outbox that hears of what is written as the daemon's does."""

    def __init__(self, table: Table, *, per_minute: int = 600) -> None:
        self.table, self.pane, self.heard = table, Pane(), len(table.records)
        self.scheduler = FakeScheduler(table.at)
        self.rate = TokenBucket(per_minute, per_minute / 60)
        self.outbox = self.an_outbox()

    def an_outbox(self) -> Outbox:
        ways = Ways(
            channels=lambda cn: [self.pane],
            still_open=lambda id, now: consume.open_for_pointer(self.table.book, id, now),
            paused=lambda cn: cn in self.table.book.paused or bool(self.table.book.ledger.stopped_at),
            take=self.take,
            scheduler=self.scheduler,
            chance=lambda: 1.0,
        )
        return Outbox(ways, self.rate, 64)

    async def take(self, decide: Callable[[Any, Instant], Decision[Instant]]) -> Instant:
        await asyncio.sleep(0)
        answer = self.table.take(decide(self.table.book, self.scheduler.now()))
        assert isinstance(answer, int)
        return answer

    def hear(self) -> None:
        """What was written since is durable now."""
        new: list[Record] = self.table.records[self.heard :]
        self.heard = len(self.table.records)
        self.outbox.hear(new, settled.by(self.table.book, new))

    async def pass_by(self, seconds: float = 0) -> None:
        self.hear()
        await self.scheduler.advance(seconds)
        self.table.at = self.scheduler.now()

    def inbox(self, after: int = 0) -> list[tuple[str, About]]:
        who = caller(A, self.table.generation())
        found = self.table.take(consume.inbox(self.table.book, self.table.at, caller=who, after=Instant(after)))
        return [(one.id, one.about) for one in found]

    def restart(self) -> None:
        """As after kill -9."""
        self.table.restart()
        self.scheduler.timers.clear()
        self.heard = len(self.table.records)
        self.outbox = self.an_outbox()
        self.outbox.resume(self.table.book.directives.values(), settled.untold(self.table.book, self.table.at))


def answered(table: Table, how: str) -> str:
    """A request that was approved, denied, left to expire, or made void."""
    request = table.asked("read" if how == "lease" else "send", SEND)
    match how:
        case "act":
            table.approve(request)
        case "lease":
            table.lease(request=request)
        case "denied":
            table.deny(request, "not to her")
        case "changed":
            table.see(*(one for one in TOOLS if one.name != "send"))
        case "accepted":
            table.accept(tool("send", description="Another."))
        case _:
            table.later(600)
            table.lapse()
    return request


ENDS = ("act", "lease", "denied", "expired", "changed", "accepted")


@pytest.mark.parametrize("how", ENDS)
async def test_every_answer_and_every_expiry_is_told_once_by_its_id_alone(table: Table, how: str) -> None:
    request = answered(table, how)
    told = Told(table)
    told.heard = 0
    await told.pass_by(599)
    assert told.pane.abouts == [(request, About.REQUEST)]
    (written,) = [record.fact for record in table.records if isinstance(record.fact, PointerDelivered)]
    assert (written.id, written.cn, written.attempt) == (request, A, 1)
    assert table.book.ledger.requests[request].pointer.delivered_at


@pytest.mark.parametrize("how", ENDS)
async def test_the_inbox_names_it_until_its_agent_has_looked_and_ten_minutes_at_most(table: Table, how: str) -> None:
    told = Told(table)
    request = answered(table, how)
    assert told.inbox() == [(request, About.REQUEST)]
    assert told.inbox(after=table.at) == []
    table.book.looked_at.add(request)
    assert told.inbox() == []
    table.book.looked_at.clear()
    table.later(600)
    assert told.inbox() == []


async def test_one_that_became_void_is_named_too(table: Table) -> None:
    told = Told(table)
    request = table.asked("send", SEND)
    table.see(*(one for one in TOOLS if one.name != "send"))
    assert told.inbox() == [(request, About.REQUEST)]


@pytest.mark.parametrize("how", ["act", "lease"])
async def test_who_made_the_call_is_not_told_any_more(table: Table, how: str) -> None:
    request = answered(table, how)
    assert isinstance(table.call("read" if how == "lease" else "send", SEND), Claimed)
    told = Told(table)
    told.heard = 0
    await told.pass_by(599)
    assert (told.pane.abouts, told.inbox()) == ([], [])
    assert table.book.ledger.requests[request].acted


async def test_what_waits_is_no_news_and_what_was_never_asked_for_is_none(table: Table) -> None:
    told = Told(table)
    table.asked("send", SEND)
    table.tool_call("ask", SEND)
    await told.pass_by(60)
    assert (told.pane.abouts, told.inbox()) == ([], [])


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("end", ["enrol", "revoke"])
async def test_a_successor_is_told_nothing_of_it(table: Table, how: str, end: str) -> None:
    answered(table, how)
    getattr(table, end)(A)
    told = Told(table)
    told.heard = 0
    await told.pass_by(599)
    assert told.pane.abouts == []
    if end == "enrol":
        assert told.inbox() == []


@pytest.mark.parametrize("how", ENDS)
async def test_a_crash_before_it_was_written_down_tells_it_again_and_one_after_does_not(table: Table, how: str) -> None:
    request = answered(table, how)
    told = Told(table)
    told.restart()
    await told.pass_by(0)
    assert told.pane.abouts == [(request, About.REQUEST)], "also of a lease, which the start has closed"
    told.restart()
    await told.pass_by(599)
    assert told.pane.abouts == [(request, About.REQUEST)]


async def test_a_failed_one_is_tried_again_and_goes_on_where_it_was_after_a_crash(table: Table) -> None:
    request = answered(table, "denied")
    told = Told(table)
    told.pane.fail = ["no such pane"] * 2
    told.heard = 0
    await told.pass_by(2)
    told.restart()
    await told.pass_by(30)
    assert [id for id, _ in told.pane.abouts] == [request] * 3
    assert table.last(PointerDelivered).attempt == 3
    assert table.count(PointerFailed) == 2


async def test_an_act_that_holds_later_is_told_when_it_holds(table: Table) -> None:
    request = table.asked("send", SEND)
    one = table.book.ledger.requests[request]
    action = Approval(request, "s", "send", one.account, one.resources, one.args_digest, one.tool_digest)
    table.say(table.statement(action, opens_s=60))
    told = Told(table)
    told.heard = 0
    await told.pass_by(59)
    assert (told.pane.abouts, told.inbox()) == ([], [])
    await told.pass_by(1)
    assert told.pane.abouts == [(request, About.REQUEST)]


async def test_during_the_emergency_stop_it_is_held_and_then_told_at_once(table: Table) -> None:
    told = Told(table)
    request = table.asked("send", SEND)
    table.take(orders.stop_all(table.book, table.at, request=operator("stop")))
    table.deny(request)
    await told.pass_by(300)
    assert told.pane.abouts == []
    table.take(orders.lift_stop(table.book, table.at, order=table.order("stop_lift")))
    await told.pass_by(0)
    assert told.pane.abouts == [(request, About.REQUEST)]


async def test_a_flood_of_requests_leaves_few_pointers_and_delays_no_directive_for_long(table: Table) -> None:
    """The pane is stuck; an agent asks for ever new things, and every one is allowed."""
    told = Told(table, per_minute=30)
    gate = told.pane.gate = asyncio.Event()
    asked = []
    for wave in range(10):
        requests = [table.asked("send", {"to": [f"{wave}-{number}"]}) for number in range(MAX_PENDING)]
        for request in requests:
            table.approve(request)
        asked += requests
        await told.pass_by(1)
    directive = table.say(table.statement(Instruction("Stop that.")))
    assert table.count(DirectiveAdmitted) == 1
    await told.pass_by(0)
    gate.set()
    await settle()
    ids = [id for id, _ in told.pane.abouts]
    assert ids == [asked[0], *asked[-MOST_REQUESTS:], directive]
    assert {id for id, _ in told.inbox()} == {*asked, directive}, "the inbox names them all"


def test_no_directive_has_the_id_of_a_request(table: Table) -> None:
    request = table.asked("send", SEND)
    assert table.say(table.statement(BoundAction("tool_call", "s", "send", SEND), id=request)) == Reason.ID_SEEN


class Unwritten:
    """A journal that looking at an inbox writes nothing to."""

    def append(self, *words: Any) -> None:
        raise AssertionError("looking writes nothing")

    async def durable(self) -> None:
        return


@pytest.mark.parametrize(("asks", "waits"), [(False, True), (True, False)])
async def test_a_request_ends_the_wait_of_those_who_know_of_requests(table: Table, asks: bool, waits: bool) -> None:
    answered(table, "denied")

    class Asking:
        waited = False

        async def wait(self, what: Any) -> None:
            what.close()
            self.waited = True

    inbox, asking = InboxChannel(), Asking()
    none: Any = None
    door = AgentDoor(Turn(table.book, Unwritten()), lambda: table.at, lambda: table.at, none, none, 60, inbox, none)
    who = caller(A, table.generation())
    raw = await door.waiting(asking, who, 30.0, Instant(0), asks)  # type: ignore[arg-type]
    assert asking.waited is waits
    assert raw.startswith(b'{"pointers":[],"requests":[{"id":')


async def test_a_settled_request_does_not_end_the_wait_of_those_who_wait_for_directives(table: Table) -> None:
    class Asking:
        async def wait(self, what: Any) -> None:
            await what

    inbox, none = InboxChannel(), None
    door = AgentDoor(Turn(table.book, Unwritten()), lambda: table.at, lambda: table.at, none, none, 60, inbox, none)  # type: ignore[arg-type]
    who = caller(A, table.generation())
    poll = asyncio.ensure_future(door.waiting(Asking(), who, 30.0, Instant(0)))  # type: ignore[arg-type]
    await settle()
    denied = answered(table, "denied")
    await inbox.deliver(A, DirectiveId(denied), About.REQUEST)
    await settle()
    assert not poll.done()
    directive = table.say(table.statement(Instruction("Stop that.")))
    await inbox.deliver(A, DirectiveId(directive))
    raw = await asyncio.wait_for(poll, 5)
    assert directive.encode() in raw
    assert denied.encode() in raw
    last = asyncio.ensure_future(door.waiting(Asking(), who, 30.0, table.at))  # type: ignore[arg-type]
    await settle()
    assert not last.done()
    inbox.close()
    assert b'"pointers":[]' in await asyncio.wait_for(last, 5)


def test_who_is_told_by_calling_again_that_it_was_refused_needs_no_pointer(table: Table) -> None:
    told = Told(table)
    request = answered(table, "denied")
    assert told.inbox() == [(request, About.REQUEST)]
    assert table.call("send", SEND) == Reason.REQUEST_DENIED
    assert told.inbox() == []
