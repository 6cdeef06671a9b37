"""Which payloads nobody needs any more: exact bytes may be dropped, records never are."""

from __future__ import annotations

from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.wire.names import Instant
from broker.wire.records import Draft, PayloadsDropped
from broker.wire.times import SECOND


def drop(book: Book, now: Instant, *, keep_s: int) -> Decision[int]:
    """Let go of the oldest payload segments, keep_s after the last thing in each has ended; which is the newest that
    is gone. The last segment is still written to."""
    gone = book.payloads_dropped
    for segment in sorted(book.payloads_until)[:-1]:
        if book.payloads_until[segment] + keep_s * SECOND > now:
            break
        gone = segment
    return Decision((Draft(PayloadsDropped(gone)),) if gone > book.payloads_dropped else (), gone)
