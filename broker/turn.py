"""The corridor: decide, append, apply, release. Nothing leaves before it is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from broker.errors import Reason, Refused
from broker.rules.book import LEEWAY_S, Book
from broker.rules.decision import Decision
from broker.rules.refusals import RefusalFold
from broker.wire.names import Instant
from broker.wire.records import ClockAccepted, Draft, Fact, JournalRestored, Record
from broker.wire.times import SECOND

T = TypeVar("T")


class Journal(Protocol):
    """What a turn needs of the journal room."""

    def append(
        self, at: Instant, drafts: Sequence[Draft], apply: Callable[[Record, tuple[bytes, ...]], None]
    ) -> object:
        """Seal, give each record with its exact bytes to `apply`, queue; without waiting. Raises Fatal once writing
        has failed, or because `apply` did: then nothing of this call is written."""

    def durable(self) -> Awaitable[None]:
        """Done when all that was appended so far is on disk. Raises Fatal when that failed."""


class Turn:
    """One passage at a time: from the decision to the queue there is no await, so no turn decides on a state that
    lacks an earlier one's effect."""

    def __init__(self, book: Book, journal: Journal) -> None:
        self.book = book
        self._journal = journal
        self._refusals = RefusalFold()
        self._latest = Instant(0)  # what was decided by a time, and forgotten by it, is not undone by an earlier one

    async def take(self, decide: Callable[[Book, Instant], Decision[T]], wall_at: Instant) -> T:
        """Decide on the newest state, write, apply; then, once durable, the answer.

        Raises Refused as the rule says, Refused(CLOCK_BEHIND) when the journal knows a later time than the clock,
        Fatal when the journal stopped. An answer that wrote nothing still waits for what it was decided on.
        """
        now = self._latest = self.now(wall_at)
        self.book.forget(now, self.book.records + 1)
        decision = decide(self.book, now)
        drafts = decision.drafts
        if decision.noted is not None:
            drafts += self._refusals.fold(decision.noted, now)
        self._write(now, drafts)
        await self._journal.durable()
        if decision.refused is not None:
            raise decision.refused
        return decision.answer  # type: ignore[return-value]  # a decision that refuses nothing has its answer

    async def read(self, read: Callable[[Book, Instant], T], wall_at: Instant) -> T:
        """What `read` makes of the newest state, told once all of that is durable. Raises as `take` does."""
        return await self.take(lambda book, now: Decision((), read(book, now)), wall_at)

    async def tidy(self, wall_at: Instant, *, everything: bool = False) -> None:
        """Write the counts of folded refusals whose minute is over."""
        now = self.now(wall_at)
        self._write(now, self._refusals.flush(now, everything=everything))
        await self._journal.durable()

    async def accept_clock(self, wall_at: Instant) -> bool:
        """Go on with a clock that is behind the journal, because the operator said so; False where it is not behind."""
        if not self._behind(wall_at):
            return False
        self._write(wall_at, (Draft(ClockAccepted(self.book.newest_at)),))
        await self._journal.durable()
        return True

    async def restore(self, wall_at: Instant, lost: int) -> None:
        """Go on with a state folder that is older, by so many records, than what was written."""
        self._write(self.now(wall_at), (Draft(JournalRestored(lost)),))
        await self._journal.durable()

    def now(self, wall_at: Instant) -> Instant:
        """Time never runs backwards: the clock, or the newest time in the journal or decided by. Raises
        Refused(CLOCK_BEHIND)."""
        if behind := self._behind(wall_at):
            if behind == self.book.newest_at - wall_at:
                detail = f"the journal is {behind // SECOND} s ahead of the clock"
                hint = "set the clock right; or stop the broker, then: lever broker serve --accept-clock"
            else:
                detail = f"the clock stood {behind // SECOND} s ahead for a moment, and things were decided by it"
                hint = "set the clock right, and start the broker again"
            raise Refused(Reason.CLOCK_BEHIND, detail, hint)
        return max(wall_at, self.book.newest_at, self._latest)

    def _behind(self, wall_at: Instant) -> int:
        """By how many microseconds the clock is behind, once that is more than the leeway."""
        behind = max(self.book.newest_at, self._latest) - wall_at
        return behind if behind > LEEWAY_S * SECOND else 0

    def _write(self, now: Instant, drafts: tuple[Draft, ...]) -> None:
        if drafts:
            self._journal.append(now, drafts, self.book.apply)


class Notes:
    """What the broker itself has seen, written in the order it was seen. While the clock is behind it waits."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.waiting: deque[Fact] = deque()

    async def write(self, wall_at: Instant, *facts: Fact) -> None:
        """Write these, and what waits. Raises Refused(CLOCK_BEHIND), and they wait; Fatal."""
        self.waiting.extend(facts)
        if self.waiting:
            await self._turn.take(self._all, wall_at)

    def _all(self, book: Book, now: Instant) -> Decision[None]:
        drafts = tuple(Draft(fact) for fact in self.waiting)
        self.waiting.clear()
        return Decision(drafts)
