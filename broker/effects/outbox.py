"""The outbox: the pointer of every admitted directive and settled request, told to its agent, again and again until it
worked or is of no more use. It acts on durable records alone, so what it has in hand can be rebuilt from the journal at
any time."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Protocol

from broker.effects.channels import Channel
from broker.effects.schedule import Scheduler, Timer
from broker.errors import BrokerError, Fatal, Refused, Unavailable
from broker.rules import backoff
from broker.rules.authority.settled import Due
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.entries import Directive
from broker.rules.rates import Bucket, TokenBucket, full
from broker.wire.act_records import StopLifted
from broker.wire.names import Cn, DirectiveId, Instant
from broker.wire.pointer import About
from broker.wire.records import AgentResumed, DirectiveAdmitted, Draft, PointerDelivered, PointerFailed, Record
from broker.wire.times import SECOND

LOOK_AGAIN_S = 60
MOST_REQUESTS = 8
"""Of one agent's requests so many pointers wait; of more the newest: they keep no directive's pointer back for long."""
_REMEMBERED = 4096
log = logging.getLogger("lever.outbox")


class Take(Protocol):
    """A turn: what it decides is written and durable when it returns. Raises Refused, Fatal."""

    def __call__(self, decide: Callable[[Book, Instant], Decision[Instant]], /) -> Awaitable[Instant]: ...


@dataclass(frozen=True, slots=True)
class Ways:
    """What the outbox is joined to.

    channels: how an agent is told; every one of them has to take a pointer. still_open(id, now): is this id to be told
    at this moment? paused(cn): are this agent's pointers to wait? Both pure, from the book. take: a turn.
    chance: random, from 0 up to 1.
    """

    channels: Callable[[Cn], Sequence[Channel]]
    still_open: Callable[[DirectiveId, Instant], bool]
    paused: Callable[[Cn], bool]
    take: Take
    scheduler: Scheduler
    chance: Callable[[], float]


@dataclass(slots=True, order=True)
class _Pointer:
    """One id to be told. attempts: tries so far; to_tell: the channels that have not taken it, None for all of them."""

    due_at: Instant
    number: int
    about: About = field(compare=False)
    id: DirectiveId = field(compare=False)
    attempts: int = field(compare=False)
    to_tell: Sequence[Channel] | None = field(compare=False, default=None)


@dataclass(slots=True)
class _Lane:
    """One agent's pointers, told one after another: a slow agent holds up nobody but itself."""

    cn: Cn
    waiting: list[_Pointer] = field(default_factory=list)
    bucket: Bucket | None = None
    busy: bool = False
    timer: Timer | None = None


class Outbox:
    """rate: pointers of one agent; parallel: how many agents are being told at the same moment, at most."""

    def __init__(self, ways: Ways, rate: TokenBucket, parallel: int) -> None:
        self._ways = ways
        self._rate = rate
        self._parallel = parallel
        self._lanes: dict[Cn, _Lane] = {}
        self._held: set[DirectiveId] = set()
        self._number = 0
        self._running: set[asyncio.Task[None]] = set()
        self._queue: OrderedDict[Cn, None] = OrderedDict()  # lanes that could start but for `parallel`
        self._first: OrderedDict[DirectiveId, bool] = OrderedDict()  # results of recent first attempts
        self._asking: dict[DirectiveId, list[asyncio.Future[bool]]] = {}
        self._stopped = False

    def hear(self, records: Iterable[Record], settled: Iterable[Due] = ()) -> None:
        """Take up what became durable: the journal calls this. settled: the requests that it settles."""
        for record in records:
            fact = record.fact
            if isinstance(fact, DirectiveAdmitted):
                self._add(About.DIRECTIVE, fact.id, fact.cn, fact.not_before_at, 0)
            elif isinstance(fact, AgentResumed) and (lane := self._lanes.get(fact.cn)):
                self._advance(lane)
            elif isinstance(fact, StopLifted):
                for held in list(self._lanes.values()):
                    self._advance(held)
        for request in settled:
            self._add(About.REQUEST, *request)

    def resume(self, directives: Iterable[Directive], settled: Iterable[Due] = ()) -> None:
        """Take up, after a start, what the book knows as active, or as settled, and not delivered."""
        for directive in directives:
            told = directive.pointer
            if not told.delivered_at:
                due_at = max(directive.not_before_at, told.next_at)
                self._add(About.DIRECTIVE, directive.id, directive.cn, due_at, told.attempts)
        for request in settled:
            self._add(About.REQUEST, *request)

    async def first_attempt(self, id: DirectiveId, timeout_s: float) -> bool:
        """Did the first attempt to tell this id work? False also when there was none within timeout_s."""
        if self._stopped or id in self._first:
            return self._first.get(id, False)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asking.setdefault(id, []).append(answer)
        try:
            await asyncio.wait({answer}, timeout=timeout_s)
        finally:
            others = [other for other in self._asking.pop(id, ()) if other is not answer]
            if others:
                self._asking[id] = others
        return answer.done() and answer.result()

    async def stop(self) -> None:
        """Start nothing more, and return when what runs has ended and is written: each channel has its deadline."""
        self._halt()
        while self._running:
            await asyncio.wait(self._running)

    def _halt(self) -> None:
        self._stopped = True
        for lane in self._lanes.values():
            if lane.timer:
                lane.timer.cancel()
        self._lanes.clear()
        self._held.clear()
        self._queue.clear()
        for id in list(self._asking):
            self._answer(id, False)

    def _add(self, about: About, id: DirectiveId, cn: Cn, due_at: Instant, attempts: int) -> None:
        if self._stopped or id in self._held:
            return
        self._held.add(id)
        lane = self._lanes.setdefault(cn, _Lane(cn))
        self._push(lane, _Pointer(due_at, 0, about, id, attempts))
        self._thin_out(lane)
        self._advance(lane)

    def _thin_out(self, lane: _Lane) -> None:
        """Let go of the oldest of too many requests; the inbox names them all."""
        requests = [pointer for pointer in lane.waiting if pointer.about is About.REQUEST]
        if len(requests) > MOST_REQUESTS:
            oldest = min(requests, key=lambda pointer: pointer.number)
            lane.waiting.remove(oldest)
            heapify(lane.waiting)
            self._drop(oldest.id)

    def _push(self, lane: _Lane, pointer: _Pointer) -> None:
        self._number += 1
        pointer.number = self._number
        heappush(lane.waiting, pointer)

    def _advance(self, lane: _Lane) -> None:
        """Do what this lane can do now: start its next pointer, or set a timer, or fall away."""
        if lane.timer:
            lane.timer.cancel()
            lane.timer = None
        if lane.busy or self._stopped:
            return
        now = self._ways.scheduler.now()
        self._drop_ended(lane, now)
        if not lane.waiting:
            if lane.bucket is None or full(lane.bucket, now):
                self._lanes.pop(lane.cn, None)
            else:
                self._set_timer(lane, lane.bucket, now)
            return
        if self._ways.paused(lane.cn):
            self._set_timer(lane, Instant(now + LOOK_AGAIN_S * SECOND), now)
            return
        ready_at = max(lane.waiting[0].due_at, self._rate.ready_at(lane.bucket, now))
        if ready_at > now:
            self._set_timer(lane, ready_at, now)
        elif len(self._running) >= self._parallel:
            self._queue[lane.cn] = None
        else:
            lane.bucket, _ = self._rate.take(lane.bucket, now)
            self._start(lane, heappop(lane.waiting))

    def _set_timer(self, lane: _Lane, at: int, now: Instant) -> None:
        # Never for long: a timer runs on a clock that stops while the machine sleeps, and knows nothing of a clock set.
        soon = Instant(min(at, now + LOOK_AGAIN_S * SECOND))
        lane.timer = self._ways.scheduler.call_at(soon, lambda: self._advance(lane))

    def _drop_ended(self, lane: _Lane, now: Instant) -> None:
        """What is due and no longer open: a directive that has ended, a request whose agent knows how it stands."""
        while lane.waiting and lane.waiting[0].due_at <= now and not self._ways.still_open(lane.waiting[0].id, now):
            pointer = heappop(lane.waiting)
            words = {"id": pointer.id, "agent": lane.cn, "attempts": pointer.attempts}
            log.info("of no more use before every channel had taken the pointer", extra=words)
            self._drop(pointer.id)

    def _drop(self, id: DirectiveId) -> None:
        self._held.discard(id)
        self._answer(id, False)

    def _start(self, lane: _Lane, pointer: _Pointer) -> None:
        lane.busy = True
        task = asyncio.get_running_loop().create_task(self._tell(lane, pointer))
        self._running.add(task)
        task.add_done_callback(lambda done: self._ended(lane, done))

    def _ended(self, lane: _Lane, task: asyncio.Task[None]) -> None:
        """Let the agent that has waited longest for a free hand go before the one that just had it."""
        self._running.discard(task)
        lane.busy = False
        if not task.cancelled() and (error := task.exception()):
            log.error("the outbox stops", exc_info=error)
            self._halt()
        while self._queue and len(self._running) < self._parallel:
            cn, _ = self._queue.popitem(last=False)
            if queued := self._lanes.get(cn):
                self._advance(queued)
        self._advance(lane)

    async def _tell(self, lane: _Lane, pointer: _Pointer) -> None:
        """One attempt: every channel that has not taken the pointer yet, then what came of it as records."""
        attempt = pointer.attempts + 1
        channels = self._ways.channels(lane.cn) if pointer.to_tell is None else pointer.to_tell
        tried = [(channel, await self._try(channel, lane.cn, pointer)) for channel in channels]
        failed = [channel for channel, why in tried if why]
        chance = self._ways.chance()
        results = [(channel.name, why) for channel, why in tried]
        try:
            next_at = await self._ways.take(
                lambda _, now: _told(pointer.id, lane.cn, attempt, results, backoff.next_at(now, attempt, chance))
            )
        except Refused as error:  # the clock is behind: told or not, it is not written, so it is to be told
            log.warning("pointer not recorded", extra={"id": pointer.id, "agent": lane.cn, "why": str(error)})
            next_at, failed = backoff.next_at(self._ways.scheduler.now(), attempt, chance), list(channels)
        except Fatal as error:
            log.error("the outbox stops", extra={"why": str(error)})
            self._halt()
            return
        self._answer(pointer.id, not failed)
        if failed:
            pointer.due_at, pointer.attempts, pointer.to_tell = next_at, attempt, failed
            self._push(lane, pointer)
        else:
            self._held.discard(pointer.id)

    async def _try(self, channel: Channel, cn: Cn, pointer: _Pointer) -> str:
        """Why it did not work; empty when it did."""
        words = {"id": pointer.id, "agent": cn, "channel": channel.name}
        try:
            await channel.deliver(cn, pointer.id, pointer.about)
        except Unavailable as error:
            log.warning("pointer not delivered", extra=words | {"why": error.what})
            return error.what
        except Exception as error:  # a fault of the channel must not cost anybody the pointer
            log.exception("pointer not delivered", extra=words)
            return str(error) if isinstance(error, BrokerError) else f"internal error: {type(error).__name__}"
        log.info("pointer delivered", extra=words)
        return ""

    def _answer(self, id: DirectiveId, delivered: bool) -> None:
        """Tell whoever asked how the first attempt went; later ones change nothing about it."""
        if id not in self._first:
            self._first[id] = delivered
            if len(self._first) > _REMEMBERED:
                self._first.popitem(last=False)
        for answer in self._asking.pop(id, ()):
            if not answer.done():
                answer.set_result(delivered)


def _told(
    id: DirectiveId, cn: Cn, attempt: int, results: Sequence[tuple[str, str]], next_at: Instant
) -> Decision[Instant]:
    """The records of one attempt. Failures last: the pointer counts as failed while one channel has not taken it."""
    worked = [Draft(PointerDelivered(id, cn, name, attempt)) for name, why in results if not why]
    failed = [Draft(PointerFailed(id, cn, name, attempt, why, next_at)) for name, why in results if why]
    return Decision((*worked, *failed), next_at)
