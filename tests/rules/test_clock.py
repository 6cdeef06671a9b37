"""Setting the broker's clock back, and what a decision still looks at when it comes to it."""

from __future__ import annotations

import pytest

from broker.errors import Reason
from broker.rules import consume, identity
from broker.rules.book import LEEWAY_S, Book
from broker.wire.caller import Caller
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant
from broker.wire.records import (
    AgentEnrolled,
    AgentFrozen,
    AgentInvited,
    AgentRevoked,
    ClockAccepted,
    DirectiveAdmitted,
    DirectiveConsumed,
    Fact,
    Record,
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
    book = Book(Instance("demo"), 60)
    for seq, fact in enumerate([*ENROLLED, *facts], 1):
        book.apply(Record(seq, Instant(at), ZERO, (), fact), None)
    return book


def test_going_back_ends_what_was_open_and_refuses_what_was_signed_before() -> None:
    used = DirectiveConsumed(DirectiveId("used"), CN, FIRST, ZERO, "attempt")
    open_ticket = AgentInvited(Cn("b"), Digest(b"t" * 32), Instant(10 * DAY), FINGERPRINT)
    book = book_of(admitted("open"), admitted("used"), used, open_ticket, at=9 * DAY)
    book.apply(Record(9, Instant(DAY // 2), ZERO, (), ClockAccepted(book.newest_at)), None)
    assert (book.newest_at, book.signed_after_at) == (DAY // 2, DAY // 2 + LEEWAY_S * SECOND)
    assert not book.directives
    assert not book.repeats
    assert not book.tickets
    assert not book.by_signer
    assert book.tombstones[DirectiveId("open")].reason == Reason.CLOCK_ACCEPTED
    assert book.tombstones[DirectiveId("used")].state == "consumed"
    assert book.agents[CN].generation == 1, "who is who stays"


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
        consume.consume(book, now, caller=CALLER, raw_id="d", attempt="", standing=STANDING),
        consume.check(book, now, caller=CALLER, raw_id="d"),
        consume.inbox(book, now, caller=CALLER, after=Instant(0)),
        identity.renew(book, now, caller=CALLER, ask=identity.Ask("a", ZERO), issue=None),  # type: ignore[arg-type]
    ]
    for decision in decisions:
        assert decision.refused is not None
        assert decision.refused.reason is reason
        assert not decision.drafts
