"""What came of calls, until it is written: a clock that is behind refuses the record, and takes nothing back."""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.errors import BrokerError, Refused
from broker.rules.authority import closing
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.turn import Turn
from broker.wire.names import Instant

log = logging.getLogger("lever.gateway")


class CallEnds:
    """Each is tried at once, and then by `flush` until it is written. As many as calls may run, at the most."""

    def __init__(self, turn: Turn, clock: Callable[[], Instant]) -> None:
        self._turn = turn
        self._clock = clock
        self._waiting: dict[str, tuple[str, bytes]] = {}

    async def write(self, claim: str, outcome: str, answer: bytes) -> None:
        """Durable once this returns. Raises Refused(CLOCK_BEHIND), and it waits; Fatal."""
        self._waiting[claim] = (outcome, answer)
        await self._write(claim)

    async def flush(self) -> None:
        """Write what waits. Raises Refused(CLOCK_BEHIND), Fatal."""
        for claim in tuple(self._waiting):
            await self._write(claim)

    async def close(self) -> None:
        """The last try. What is not written by then has an unknown outcome from the next start on."""
        try:
            await self.flush()
        except BrokerError as error:
            log.error("ends of calls never written", extra={"claims": list(self._waiting), "why": str(error)})

    async def _write(self, claim: str) -> None:
        def decide(book: Book, now: Instant) -> Decision[str]:
            if claim not in book.ledger.running:  # another flush came to it meanwhile
                return Decision((), "")
            outcome, answer = self._waiting[claim]
            return closing.end(book, now, claim=claim, outcome=outcome, answer=answer)

        try:
            await self._turn.take(decide, self._clock())
        except Refused:
            raise
        except BrokerError:  # it can't be written at all: what comes after it still can be
            self._waiting.pop(claim, None)
            raise
        self._waiting.pop(claim, None)
