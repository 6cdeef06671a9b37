"""The corridor: decide, append, apply, release. Nothing leaves before it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from broker.errors import Reason, Refused
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.refusals import RefusalFold
from broker.wire.names import Instant
from broker.wire.records import Draft, Record
from broker.wire.times import SECOND

LEEWAY_S = 120
T = TypeVar("T")


class Journal(Protocol):
    """What a turn needs of the journal room."""

    def append(self, at: Instant, drafts: Sequence[Draft]) -> tuple[Record, ...]:
        """Seal and queue, without waiting. Raises Fatal once writing has failed."""

    def durable(self) -> Awaitable[None]:
        """Done when all that was appended so far is on disk. Raises Fatal when that failed."""


class Turn:
    """One passage at a time: from the decision to the queue there is no await, so no turn decides on a state that
    lacks an earlier one's effect."""

    def __init__(self, book: Book, journal: Journal) -> None:
        self.book = book
        self._journal = journal
        self._refusals = RefusalFold()

    async def take(self, decide: Callable[[Book, Instant], Decision[T]], wall_at: Instant) -> T:
        """Decide on the newest state, write, apply; then, once durable, the answer.

        Raises Refused as the rule says, Refused(CLOCK_BEHIND) when the journal knows a later time than the clock,
        Fatal when the journal stopped. An answer that wrote nothing still waits for what it was decided on.
        """
        now = self.now(wall_at)
        decision = decide(self.book, now)
        drafts = decision.drafts
        if decision.noted is not None:
            drafts += self._refusals.fold(decision.noted, now)
        self._write(now, drafts)
        await self._journal.durable()
        if decision.refused is not None:
            raise decision.refused
        return decision.answer  # type: ignore[return-value]  # a decision that refuses nothing has its answer

    async def tidy(self, wall_at: Instant, *, everything: bool = False) -> None:
        """Write the counts of folded refusals whose minute is over."""
        now = self.now(wall_at)
        self._write(now, self._refusals.flush(now, everything=everything))
        await self._journal.durable()

    def now(self, wall_at: Instant) -> Instant:
        """Time never runs backwards: the clock, or the newest time in the journal. Raises Refused(CLOCK_BEHIND)."""
        behind = self.book.newest_at - wall_at
        if behind > LEEWAY_S * SECOND:
            raise Refused(Reason.CLOCK_BEHIND, f"the journal is {behind // SECOND} s ahead of the clock")
        return max(wall_at, self.book.newest_at)

    def _write(self, now: Instant, drafts: tuple[Draft, ...]) -> None:
        if not drafts:
            return
        for record, draft in zip(self._journal.append(now, drafts), drafts, strict=True):
            self.book.apply(record, draft.payloads)
