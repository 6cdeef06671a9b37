"""The whole core on a disk that may fail: turn, rules, book and journal, joined as in the daemon, and who was told."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

from broker import restart
from broker.errors import Fatal, Reason, Refused
from broker.journal import inspect
from broker.journal.state import StateFolder
from broker.journal.writer import JournalWriter
from broker.rules.authority import closing
from broker.rules.authority.entries import Act, ActState
from broker.rules.authority.ledger import Ledger
from broker.rules.authority.room import Ends
from broker.rules.book import Book
from broker.rules.entries import Tombstone
from broker.turn import Notes, Turn
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Instant
from broker.wire.policy_terms import Policy
from broker.wire.records import BrokerStarted, BrokerStopped, Record
from tests.proof.watched_disk import WatchedDisk

SEGMENT_BYTES = 3000
LEASES = "leases"
"""The key of what is promised of open leases: a start ends it."""
_HANGS_S = 30  # an answer that never comes is a failure, not a test that never ends
_NOT_COMPARED = {"_set_back", "_words", "last_seen", "looked_at", "apply", "_by_minute", "_by_hour", "by_signer"}


@dataclass(frozen=True)
class Promise:
    """What has to hold of the book after any restart, until somebody asks for something that ends `key`."""

    holds: Callable[[Book, Instant], None]
    key: str = ""


@dataclass(eq=False)
class Ask:
    """One call of the core. rests_on: the newest record that its answer was decided on.

    keeps: what is promised once it is answered, and what is while it is not. ends: keys of promises it may end.
    """

    name: str
    keeps: Callable[[Any], Iterable[Promise]] = lambda answer: ()
    owes: tuple[Promise, ...] = ()
    ends: frozenset[str] = frozenset()
    rests_on: int = 0
    promises: tuple[Promise, ...] = ()


@dataclass(frozen=True)
class Moment:
    """Just before a changing call: how the disk lies, who was answered, who has asked."""

    disk: WatchedDisk
    told: tuple[Ask, ...]
    begun: tuple[Ask, ...]


@dataclass(eq=False)
class Life:
    """One run of a story over sessions.

    like: an earlier life that this one repeats, up to a fault. pictures: by the number of a turn's last record, the
    book that was live behind it; starts: by what lies on a disk, the book that a start on it reads. Both are shared
    with that life.
    """

    folder: StateFolder
    disk: WatchedDisk
    like: Life | None = None
    told: list[Ask] = field(default_factory=list)
    begun: list[Ask] = field(default_factory=list)
    unanswered: list[Ask] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    pictures: dict[int, object] = field(default_factory=dict)
    starts: dict[bytes, Book] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    stopped: list[Fatal] = field(default_factory=list)
    turn: Turn = field(init=False)
    notes: Notes = field(init=False)
    journal: JournalWriter = field(init=False)

    def __post_init__(self) -> None:
        if self.like:
            self.pictures, self.starts = self.like.pictures, self.like.starts

    def watch(self) -> None:
        """Keep each moment from now on."""
        self.disk.before_call = lambda: self.moments.append(self.moment())

    def copy(self) -> Life:
        """Between two sessions: another life that may go on from here."""
        like = self.like or self
        return Life(self.folder, self.disk.moment(), like, [*self.told], [*self.begun], records=[*self.records])

    def moment(self) -> Moment:
        return Moment(self.disk.moment(), tuple(self.told), tuple(self.begun))

    @asynccontextmanager
    async def session(
        self, at: Instant, *, accept_clock: bool = False, restored: int = 0, ends: Iterable[str] = ()
    ) -> AsyncIterator[None]:
        """From a daemon's start to its stop. at: the clock at the start; ends: what such a start ends.

        restored: the folder is said to be older than what was written, by so many records.
        """
        book, recovered = restart.read(self.folder, self.disk, accept_clock_at=at if accept_clock else None)
        if book.records in self.pictures:
            assert picture(book) == self.pictures[book.records] or accept_clock
        self.journal = JournalWriter(
            self.folder,
            self.disk,
            recovered,
            on_durable=self.records.extend,
            on_stopped=self.stopped.append,
            segment_bytes=SEGMENT_BYTES,
        )
        self.turn = Turn(book, self.journal)
        self.notes = Notes(self.turn)
        self.pictures.setdefault(book.records, picture(book))
        if not self.like:
            self._photograph(book)
        try:
            if accept_clock:
                await self.ask("accept the clock", self.turn.accept_clock(at), ends=ends)
            if restored:
                await self.ask("restore", self.turn.restore(at, restored), ends=ends)
            begins = self.turn.take(partial(closing.settle, started=BrokerStarted("0", recovered.cut_bytes)), at)
            await self.ask("start", begins, ends={LEASES, *ends})
            self._begins_clean(book)
            yield
            end = max(at, book.newest_at)
            await self.ask("the last counts", self.turn.tidy(end, everything=True))
            await self.ask("stop", self.notes.write(end, BrokerStopped()))
        finally:
            await self.journal.close()

    async def ask(
        self,
        name: str,
        call: Coroutine[Any, Any, Any],
        *,
        keeps: Callable[[Any], Iterable[Promise]] = lambda answer: (),
        owes: Iterable[Promise] = (),
        ends: Iterable[str] = (),
    ) -> Any:
        """The answer, or the reason of a refusal; None where the journal has stopped.

        An answer that comes before the records under it are on the disk, or after the disk refused, is a failure.
        """
        ask = Ask(name, keeps, tuple(owes), frozenset(ends))
        if not self.disk.struck:
            self.begun.append(ask)
        answer: Any
        try:
            async with asyncio.timeout(_HANGS_S):
                answer = await _FirstLeg(call, lambda: setattr(ask, "rests_on", self.turn.book.records))
        except Refused as refused:
            answer = refused.reason
        except Fatal:
            assert self.disk.struck, f"{name}: the journal stopped though the disk refused nothing"
            self.unanswered.append(ask)
            return None
        if answer is not Reason.CLOCK_BEHIND:  # which says nothing of what is written
            assert not self.disk.struck, f"{name}: answered after the disk refused"
            durable = self.disk.durable_records(self.folder.journal)
            assert durable >= ask.rests_on, f"{name}: answered before it was durable"
        ask.promises = tuple(keeps(answer))
        self.told.append(ask)
        return answer

    def _begins_clean(self, book: Book) -> None:
        """No lease outlives its broker, and nobody waits for a call that died with it."""
        if not self.disk.struck:
            assert not book.ledger.leases
            assert all(claim.outcome for claim in book.ledger.claims.values()), "a call that nobody will ever end"

    def _photograph(self, book: Book) -> None:
        """From now on keep a picture of the book behind each turn."""
        appended = self.journal.append

        def append(*turn: Any) -> tuple[Record, ...]:
            records = appended(*turn)
            self.pictures[book.records] = picture(book)
            return records

        self.journal.append = append  # type: ignore[method-assign]


class _FirstLeg:
    """Runs a call up to where it first waits, says so, and goes on: what is decided by then is what it rests on."""

    def __init__(self, call: Coroutine[Any, Any, Any], decided: Callable[[], None]) -> None:
        self._call, self._decided = call, decided

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._call.__await__()
        try:
            first = next(steps)
        except StopIteration as done:
            self._decided()
            return done.value
        self._decided()
        yield first
        return (yield from steps)


def examine(life: Life, disk: WatchedDisk, told: Iterable[Ask], begun: Iterable[Ask], *, thorough: bool = True) -> Book:
    """Start on this disk: all that was told is there, nothing can happen twice, and the book is the one that lived.

    thorough: let `lever journal verify` judge what the start has left, too.
    """
    answered = set(told)
    book = _start(life, disk, thorough=thorough)
    newest = max((ask.rests_on for ask in answered), default=0)
    assert book.records >= newest, "what was told is not there"
    over: set[str] = set()
    for ask in reversed(tuple(begun)):
        for promise in ask.promises if ask in answered else ask.owes:
            if promise.key not in over:
                promise.holds(book, book.newest_at)
        over |= ask.ends
    return book


def _start(life: Life, disk: WatchedDisk, *, thorough: bool) -> Book:
    """What a start on this disk reads; of equal disks one is enough."""
    lies = disk.digest()
    if thorough or lies not in life.starts:
        book, recovered = restart.read(life.folder, disk)
        assert recovered.next_seq == book.records + 1
        assert book.records in life.pictures, "a part of what a turn decided"
        assert picture(book) == life.pictures[book.records], "another book than the one that lived"
        life.starts[lies] = book
    if thorough:
        with patch.object(inspect, "RealDisk", lambda: disk):
            report = inspect.verify(life.folder.path)
        assert report.problems == ()
        assert report.records == life.starts[lies].records
    return life.starts[lies]


def picture(value: Any) -> object:
    """All that a book decides on, as plain values to compare: order counts where it is seen."""
    if isinstance(value, str | bytes | int):
        return value
    match value:
        case dict():
            return tuple([(key, picture(held)) for key, held in value.items()])
        case list() | tuple():
            return tuple([picture(held) for held in value])
        case set():
            return frozenset(value)
        case Book():
            kept = {name: held for name, held in vars(value).items() if name not in _NOT_COMPARED}
            ended = {(hour, id) for hour, ids in value._by_hour.items() for id in ids}
            signed = {(signer, id) for signer, ids in value.by_signer.items() for id in ids}
            return picture(kept), frozenset(ended), frozenset(signed), value.due(Instant(1 << 60))
        case Ledger():
            return picture(vars(value))
        case Ends():
            return tuple(value)
        case Policy() | PinnedTool():
            return value.digest
        case Act() if value.state is not ActState.ACTIVE:  # its exact bytes are asked for no more, nor read at a start
            spent = dataclasses.replace(value.signed, statement=b"", signature=b"")
            return tuple([picture(spent if name == "signed" else getattr(value, name)) for name in Act.__slots__])
        case Tombstone():
            return tuple([getattr(value, name) for name in Tombstone.__slots__])
        case _ if dataclasses.is_dataclass(value):
            return tuple([picture(getattr(value, name)) for name in value.__dataclass_fields__])
        case _:
            assert value is None, f"how is {value!r} to be compared?"
            return None
