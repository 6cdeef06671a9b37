"""When exact bytes may go: so long after the end of the last thing in their segment, the oldest first."""

from __future__ import annotations

import pytest

from broker.rules import retention
from broker.rules.book import Book
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant
from broker.wire.records import DirectiveAdmitted, EnvelopeAccepted, Fact, PayloadRef, PayloadsDropped, Record
from broker.wire.times import SECOND

ZERO, KEY = Digest(b"\0" * 32), Fingerprint("SHA256:x")
DAY = 86400 * SECOND


def admitted(id: str, expires_at: int) -> DirectiveAdmitted:
    return DirectiveAdmitted(
        DirectiveId(id), Cn("a"), Generation(1), "instruction", "", "", ZERO, Instant(1), Instant(1),
        Instant(expires_at), KEY, ZERO, ZERO,
    )  # fmt: skip


def envelope(day: int) -> EnvelopeAccepted:
    return EnvelopeAccepted("list", Digest(bytes([day]) * 32), Instant(day * DAY), KEY)


def book_of(*facts: tuple[int, Fact]) -> Book:
    """Facts with the payload segment that each has its bytes in."""
    book = Book(Instance("demo"))
    for seq, (segment, fact) in enumerate(facts, 1):
        refs = (PayloadRef(ZERO, segment, seq, 1),) * 2 if segment else ()
        book.apply(Record(seq, Instant(seq), ZERO, refs, fact), None)
    return book


def gone(book: Book, day: float) -> int | None:
    return retention.drop(book, Instant(int(day * DAY)), keep_s=90 * 86400).answer


def test_a_segment_goes_when_all_in_it_ended_long_enough_ago() -> None:
    book = book_of((1, admitted("a", 2 * DAY)), (1, envelope(1)), (2, envelope(1)))
    assert gone(book, 91.9) == 0
    assert gone(book, 92) == 1


def test_the_segment_that_is_written_to_stays() -> None:
    assert gone(book_of((1, envelope(1)), (2, envelope(1))), 1000) == 1
    assert gone(book_of((1, envelope(1))), 1000) == 0


def test_an_older_segment_that_is_still_needed_keeps_the_later_ones() -> None:
    book = book_of((1, admitted("a", 50 * DAY)), (2, envelope(1)), (3, envelope(1)))
    assert gone(book, 100) == 0
    assert gone(book, 140) == 2


@pytest.mark.parametrize("day", [92, 1000])
def test_it_is_written_once(day: int) -> None:
    book = book_of((1, envelope(1)), (2, envelope(2)), (0, PayloadsDropped(1)))
    assert retention.drop(book, Instant(day * DAY), keep_s=90 * 86400).drafts == ()
