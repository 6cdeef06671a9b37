"""Who an agent is: tickets, generations, renewals, and who is barred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker.errors import Reason
from broker.rules.authority import spans
from broker.rules.book import Book
from broker.rules.decision import Decision, Request
from broker.rules.entries import Agent, Enrolment
from broker.wire.caller import Caller
from broker.wire.names import Cn, Digest, Generation, Instant
from broker.wire.records import AgentEnrolled, AgentFrozen, CertificateRenewed, Draft


class Certificate(Protocol):
    """An issued certificate. pem: its text; cert_digest: SHA-256 of its DER."""

    @property
    def pem(self) -> str: ...
    @property
    def cert_digest(self) -> Digest: ...
    @property
    def not_after_at(self) -> Instant: ...


class Issue(Protocol):
    """The CA's hand: a certificate of this name and generation for the key of the request at hand."""

    def __call__(self, cn: Cn, generation: Generation, now: Instant, /) -> Certificate: ...


class Bearer(Protocol):
    """Whose certificate it is, as far as it bars anybody: a caller; or an agent, with its newest one."""

    @property
    def cn(self) -> Cn: ...
    @property
    def generation(self) -> Generation: ...
    @property
    def not_after_at(self) -> Instant: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """A checked certificate request: the name that it asks for (empty: none) and the digest of its key."""

    cn: str
    key_digest: Digest


def barred(book: Book, caller: Bearer, now: Instant) -> Reason | None:
    """Why this certificate gets a 403 everywhere but, while its agent is paused, at renew; on open connections too."""
    return shut_out(book, caller, now) or (Reason.AGENT_PAUSED if caller.cn in book.paused else None)


def shut_out(book: Book, caller: Bearer, now: Instant) -> Reason | None:
    """Why this certificate is of no more use."""
    if now >= caller.not_after_at:
        return Reason.CERTIFICATE_EXPIRED
    agent = book.agents.get(caller.cn)
    if agent and agent.state is Enrolment.REVOKED:
        return Reason.AGENT_REVOKED
    if agent and agent.state is Enrolment.FROZEN and agent.generation == caller.generation:
        return Reason.AGENT_FROZEN
    return None


def stale(book: Book, caller: Bearer) -> Reason | None:
    """Why a certificate of another enrolment than the current one gets a 403 outside of consume and check."""
    agent = book.agents.get(caller.cn)
    return None if agent and agent.generation == caller.generation else Reason.GENERATION_STALE


def enrol(book: Book, now: Instant, *, ticket_digest: Digest, ask: Ask, issue: Issue) -> Decision[bytes]:
    """Redeem a ticket: the next generation and its certificate (PEM), in one turn with the end of the last one's."""
    ticket = book.tickets.get(ticket_digest)
    request = Request("agent", ticket.cn if ticket else "-", "enrol")
    if ticket is None:
        return request.refuse(Reason.TICKET_UNKNOWN)
    if ask.cn != ticket.cn:
        return request.refuse(Reason.TICKET_OTHER_NAME)
    if ticket.answer is not None:
        if ticket.answer.csr_key_digest == ask.key_digest and now < ticket.answer.until_at:
            return Decision((), ticket.answer.certificate)
        return request.refuse(Reason.TICKET_SPENT)
    if now >= ticket.expires_at:
        return request.refuse(Reason.TICKET_EXPIRED)
    agent = book.agents.get(ticket.cn)
    generation = Generation((agent.generation if agent else book.generation_base) + 1)
    made = issue(ticket.cn, generation, now)
    fact = AgentEnrolled(ticket.cn, generation, ticket_digest, ask.key_digest, made.cert_digest, made.not_after_at)
    pem = made.pem.encode("ascii")
    closed = spans.all_closed(book.ledger.leases.values(), ticket.cn, "enrolled anew", now)
    return Decision((*closed, Draft(fact, (pem,))), pem)


def renew(book: Book, now: Instant, *, caller: Caller, ask: Ask, issue: Issue) -> Decision[bytes]:
    """The certificate (PEM) that follows the caller's, of the same generation. The request's own name is ignored."""
    request = Request("agent", caller.cn, "renew")
    if bar := shut_out(book, caller, now):
        return request.refuse(bar)
    agent = book.agents.get(caller.cn)
    if not _may_renew(book, agent, caller):
        return request.refuse(Reason.GENERATION_STALE)
    earlier = agent.lineage.get(caller.cert_digest) if agent else None
    if earlier is not None:
        if earlier.csr_key_digest == ask.key_digest:
            return Decision((), earlier.certificate)
        fact = AgentFrozen(caller.cn, caller.generation, caller.cert_digest, ask.key_digest)
        closed = spans.all_closed(book.ledger.leases.values(), caller.cn, "frozen", now)
        return request.refuse(Reason.CERTIFICATE_FORKED, drafts=(*closed, Draft(fact)))
    made = issue(caller.cn, caller.generation, now)
    renewed = CertificateRenewed(
        caller.cn, caller.generation, caller.cert_digest, ask.key_digest, made.cert_digest, made.not_after_at
    )
    pem = made.pem.encode("ascii")
    return Decision((Draft(renewed, (pem,)),), pem)


def _may_renew(book: Book, agent: Agent | None, caller: Caller) -> bool:
    """A certificate from before generations (it counts as 1) establishes 1 where there is none."""
    return caller.generation == (agent.generation if agent else book.generation_base + 1)
