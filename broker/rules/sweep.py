"""What time alone changes."""

from __future__ import annotations

from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.wire.names import Instant
from broker.wire.records import DirectivesExpired, Draft

_AT_ONCE = 1000


def sweep(book: Book, now: Instant) -> Decision[None]:
    """Write down the windows that have closed. Nothing depends on it being on time: each decision looks at its own."""
    ids = book.due(now)[:_AT_ONCE]
    return Decision((Draft(DirectivesExpired(ids)),) if ids else ())
