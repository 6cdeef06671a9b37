"""Setting the broker's clock back, and what a decision still looks at when it comes to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.errors import Reason
from broker.rules import consume, identity
from broker.rules.book import Book, SetBack
from broker.wire.caller import Caller
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant
from broker.wire.records import (
    AgentEnrolled,
    AgentFrozen,
    AgentInvited,
    AgentRevoked,
    CertificateRenewed,
    ClockAccepted,
    DirectiveAdmitted,
    DirectiveConsumed,
    EnvelopeAccepted,
    Fact,
    Record,
    SelftestPassed,
)
from broker.wire.times import SECOND
from broker.wire.verified import Standing

CN, FIRST, ZERO = Cn("a"), Generation(1), Digest(b"\0" * 32)
SIGNER, FINGERPRINT = Digest(b"s" * 32), Fingerprint("SHA256:x")
STANDING = Standing(ZERO, good=frozenset([SIGNER]), bad=frozenset())
DAY = 86400 * SECOND
CALLER = Caller(CN, FIRST, Instant(DAY), ZERO, ZERO)


def admitted(id: str) -> DirectiveAdmitted:
    return DirectiveAdmitted(
        DirectiveId(id), CN, FIRST, "instruction", "", "", ZERO, Instant(1), Instant(1), Instant(DAY),
        FINGERPRINT, SIGNER, ZERO,
    )  # fmt: skip


ENROLLED: list[Fact] = [
    AgentInvited(CN, ZERO, Instant(DAY), FINGERPRINT),
    AgentEnrolled(CN, FIRST, ZERO, ZERO, ZERO, Instant(DAY)),
]


def book_of(*facts: Fact, at: int = 10) -> Book:
    book = Book(Instance("demo"))
    for seq, fact in enumerate([*ENROLLED, *facts], 1):
        book.apply(Record(seq, Instant(at), ZERO, (), fact), None)
    return book


def test_going_back_ends_what_was_open() -> None:
    used = DirectiveConsumed(DirectiveId("used"), CN, FIRST, ZERO, "attempt", Instant(9 * DAY + 60 * SECOND))
    open_ticket = AgentInvited(Cn("b"), Digest(b"t" * 32), Instant(10 * DAY), FINGERPRINT)
    book = book_of(admitted("open"), admitted("used"), used, open_ticket, at=9 * DAY)
    book.apply(Record(9, Instant(DAY // 2), ZERO, (), ClockAccepted(book.newest_at)), None)
    assert book.newest_at == DAY // 2
    assert not book.directives
    assert not book.repeats
    assert not book.tickets
    assert not book.by_signer
    assert book.tombstones[DirectiveId("open")].reason == Reason.CLOCK_ACCEPTED
    assert book.tombstones[DirectiveId("used")].state == "consumed"
    assert book.agents[CN].generation == 1, "who is who stays"


def wrong_future(set_back: list[SetBack]) -> Book:
    """A directive, an envelope and a renewal, all of the time to come, and then so long that each is forgotten."""
    book = Book(Instance("demo"), set_back)
    until = Instant(10 * DAY + 120 * SECOND)
    told: list[tuple[int, Fact]] = [
        *((10, fact) for fact in ENROLLED),
        (10 * DAY, replace(admitted("used"), expires_at=Instant(10 * DAY + 600 * SECOND))),
        (10 * DAY, DirectiveConsumed(DirectiveId("used"), CN, FIRST, ZERO)),
        (10 * DAY, EnvelopeAccepted("list", Digest(b"e" * 32), until, FINGERPRINT)),
        (10 * DAY, CertificateRenewed(CN, FIRST, Digest(b"c" * 32), ZERO, ZERO, Instant(11 * DAY))),
        (20 * DAY, SelftestPassed(FINGERPRINT)),
        (DAY, ClockAccepted(Instant(20 * DAY))),
    ]
    for seq, (at, fact) in enumerate(told, 1):
        book.apply(Record(seq, Instant(at), ZERO, (), fact), None)
    return book


@pytest.mark.promise("P4", "P8")
def test_what_was_used_in_the_time_that_is_taken_back_stays_used() -> None:
    assert not wrong_future([]).tombstones, "without knowing what is to come it would all be forgotten"
    book = wrong_future([SetBack(9, Instant(DAY))])
    assert book.tombstones[DirectiveId("used")].state == "consumed"
    assert Digest(b"e" * 32) in book.envelopes
    assert Digest(b"c" * 32) in book.agents[CN].lineage, "a fork is still seen as one"
    book.apply(Record(10, Instant(13 * DAY), ZERO, (), SelftestPassed(FINGERPRINT)), None)
    assert not book.tombstones, "and is forgotten when its time has really passed"
    assert not book.envelopes
    assert not book.agents[CN].lineage


@pytest.mark.promise("P16")
@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (AgentFrozen(CN, FIRST, ZERO, ZERO), Reason.AGENT_FROZEN),
        (AgentRevoked(CN, FINGERPRINT), Reason.AGENT_REVOKED),
        (None, Reason.CERTIFICATE_EXPIRED),
    ],
)
def test_an_identity_that_ends_while_its_call_waits_gets_nothing_by_it(ending: Fact | None, reason: Reason) -> None:
    book, now = book_of(admitted("d"), *([ending] if ending else [])), Instant(20 if ending else DAY)
    decisions = [
        consume.consume(book, now, caller=CALLER, raw_id="d", attempt="", standing=STANDING, repeat_s=60),
        consume.check(book, now, caller=CALLER, raw_id="d"),
        consume.inbox(book, now, caller=CALLER, after=Instant(0)),
        identity.renew(book, now, caller=CALLER, ask=identity.Ask("a", ZERO), issue=None),  # type: ignore[arg-type]
    ]
    for decision in decisions:
        assert decision.refused is not None
        assert decision.refused.reason is reason
        assert not decision.drafts
