"""What is forgotten is part of the fold: a replay of the records gives the same book as the life that wrote them."""

from __future__ import annotations

from broker.rules.book import TOMBSTONE_S, Book
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant
from broker.wire.records import DirectiveAdmitted, DirectiveConsumed, DirectivesExpired, Fact, Record
from broker.wire.times import SECOND

ID = DirectiveId("deploy")
ZERO = Digest(b"\0" * 32)


def admitted(at: int) -> DirectiveAdmitted:
    until = Instant(at + 600 * SECOND)
    return DirectiveAdmitted(
        ID, Cn("a"), Generation(1), "instruction", "", "", ZERO, Instant(at), Instant(at), until,
        Fingerprint("SHA256:x"), ZERO, ZERO,
    )  # fmt: skip


def test_an_id_used_again_after_its_tombstone_lives_one_life_at_a_time() -> None:
    later = 600 * SECOND + (TOMBSTONE_S + 7200) * SECOND
    facts: list[tuple[int, Fact]] = [
        (0, admitted(0)),
        (1, DirectiveConsumed(ID, Cn("a"), Generation(1), ZERO, "")),
        (later, admitted(later)),
    ]
    book = Book(Instance("demo"))
    for seq, (at, fact) in enumerate(facts, 1):
        book.apply(Record(seq, Instant(at), ZERO, (), fact), None)
    expired_at = Instant(later + 601 * SECOND)
    assert book.due(expired_at) == (ID,), "once, not once for each life"
    book.apply(Record(4, expired_at, ZERO, (), DirectivesExpired((ID,))), None)
    assert book.tombstones[ID].state == "expired", "the new tombstone is not buried with the old one's hour"
