"""What a signed envelope may do: each operation is taken once, in the turn that carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from broker.errors import Reason
from broker.rules.admit import Flaw
from broker.rules.authority import spans
from broker.rules.book import Book
from broker.rules.decision import Decision, Request
from broker.rules.entries import Enrolment
from broker.wire.envelope import Envelope
from broker.wire.names import SELFTEST, Cn, Digest, DirectiveId, Instance, Instant
from broker.wire.records import (
    AgentInvited,
    AgentPaused,
    AgentResumed,
    AgentRevoked,
    DirectiveRevoked,
    Draft,
    EnvelopeAccepted,
    RepeatRevoked,
)
from broker.wire.times import SECOND
from broker.wire.verified import VerifiedBytes

FRESH_S = 120


@dataclass(frozen=True, slots=True)
class Order:
    """A verified envelope that has come to the route of `op`."""

    op: str
    verified: VerifiedBytes
    envelope: Envelope
    request: Request

    @property
    def accepted(self) -> Draft:
        """The record that makes the envelope single-use, with its exact bytes."""
        fact = EnvelopeAccepted(
            self.op,
            Digest(sha256(self.verified.raw).digest()),
            Instant(self.envelope.issued_at + FRESH_S * SECOND),
            self.verified.fingerprint,
        )
        return Draft(fact, (self.verified.raw, self.verified.signature))


def flaw_of(book: Book, now: Instant, order: Order, instance: Instance) -> Flaw | None:
    """Why this envelope can't be taken: instance, operation, freshness, single use."""
    envelope = order.envelope
    if envelope.instance != instance:
        return Reason.WRONG_INSTANCE, f"signed for {envelope.instance}, this is {instance}", ""
    if envelope.op != order.op:
        return Reason.WRONG_OPERATION, f"signed for {envelope.op}, sent to {order.op}", ""
    if abs(envelope.issued_at - now) > FRESH_S * SECOND:
        return (
            Reason.ENVELOPE_STALE,
            f"issued more than {FRESH_S} s from the broker's clock",
            "compare the clocks: lever doctor",
        )
    if envelope.issued_at <= book.restored_at:
        return (
            Reason.JOURNAL_RESTORED,
            "issued before this state folder was restored, or within two minutes of it",
            "wait two minutes, then run the command again",
        )
    if sha256(order.verified.raw).digest() in book.envelopes:
        return (
            Reason.ENVELOPE_REPLAYED,
            "this envelope was used before",
            "run the command again: it signs anew",
        )
    return None


def take(
    book: Book, now: Instant, *, order: Order, read: Callable[[Book, Instant], Any] = lambda _book, _now: None
) -> Decision[Any]:
    """An operation that only reads: the envelope is spent, nothing else changes; the answer is what `read` makes of
    the book. It is read here, since what is decided behind this turn may not be on disk when the answer leaves."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    return Decision((order.accepted,), read(book, now))


def revoke(book: Book, now: Instant, *, order: Order, id: DirectiveId) -> Decision[bool]:
    """Take an active directive back; False where there is none of that id. A consumed one is not repeated any more."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    directive = book.directives.get(id)
    repeat = book.repeats.get(id)
    if repeat is not None and now < repeat.until_at:
        return Decision((order.accepted, Draft(RepeatRevoked(id, order.verified.fingerprint))), False)
    if directive is None or directive.expires_at <= now:
        return Decision((order.accepted,), False)
    return Decision((order.accepted, Draft(DirectiveRevoked(id, order.verified.fingerprint))), True)


def invite(
    book: Book,
    now: Instant,
    *,
    order: Order,
    cn: Cn,
    ticket_digest: Digest,
    expires_s: int,
    tenant: str = "",
    project: str = "",
) -> Decision[Instant]:
    """A single-use ticket for a name; earlier unredeemed ones of that name are void. The answer is its expiry.

    tenant, project: the layers of policy that the agent will stand under.
    """
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    if cn == SELFTEST:
        return order.request.refuse(Reason.RESERVED_NAME, "the name selftest is reserved", "choose another name")
    if ticket_digest in book.tickets:
        return order.request.refuse(Reason.BAD_PARAMS, "this ticket was used before")
    expires_at = Instant(now + expires_s * SECOND)
    fact = AgentInvited(cn, ticket_digest, expires_at, order.verified.fingerprint, tenant, project)
    return Decision((order.accepted, Draft(fact)), expires_at)


def revoke_agent(book: Book, now: Instant, *, order: Order, cn: Cn) -> Decision[bool]:
    """Shut an agent out and void its tickets; False where there is nothing of that name to shut out."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    agent = book.agents.get(cn)
    alive = agent is not None and agent.state is not Enrolment.REVOKED
    if not alive and not any(t.cn == cn and not t.answer for t in book.tickets.values()):
        return Decision((order.accepted,), False)
    closed = spans.all_closed(book.ledger.leases.values(), cn, "revoked", now)
    return Decision((order.accepted, *closed, Draft(AgentRevoked(cn, order.verified.fingerprint))), True)


def pause(book: Book, now: Instant, *, order: Order, cn: Cn) -> Decision[bool]:
    """Bar an agent, and whoever enrols under its name, until it is resumed; False where there is none to pause.

    What waits for it stays open; a lease was for `now`, and that is over.
    """
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    if cn not in book.agents or cn in book.paused:
        return Decision((order.accepted,), False)
    closed = spans.all_closed(book.ledger.leases.values(), cn, "paused", now)
    return Decision((order.accepted, *closed, Draft(AgentPaused(cn, order.verified.fingerprint))), True)


def resume(book: Book, now: Instant, *, order: Order, cn: Cn) -> Decision[bool]:
    """End an agent's pause; False where it was not paused."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    if cn not in book.paused:
        return Decision((order.accepted,), False)
    return Decision((order.accepted, Draft(AgentResumed(cn, order.verified.fingerprint))), True)
