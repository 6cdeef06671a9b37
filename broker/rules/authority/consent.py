"""The operator's answers: an act for one call, a lease for reads, or no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.errors import Reason
from broker.rules.admin import Order, flaw_of
from broker.rules.admit import Flaw, Terms, flaws_of
from broker.rules.authority.entries import ActState, RequestState
from broker.rules.authority.entries import Request as Waiting
from broker.rules.book import Book
from broker.rules.decision import Decision, Request
from broker.wire.act_records import ActEnded, ActGranted, LeaseClosed, LeaseOpened, RequestDenied
from broker.wire.names import Cn, Instant
from broker.wire.records import Draft
from broker.wire.statement import Approval, LeaseAction, Statement
from broker.wire.times import SECOND
from broker.wire.verified import Standing, VerifiedBytes

FIRST_READ_S: Final = 60


@dataclass(frozen=True, slots=True)
class Granted:
    """id: of the act or lease; cn: whom to tell; request: what it answers."""

    id: str
    cn: Cn
    request: str


def grant(
    book: Book, now: Instant, *, request: Request, verified: VerifiedBytes, statement: Statement, terms: Terms
) -> Decision[Granted]:
    """What a signed approval or lease allows, from now on."""
    if flaw := flaws_of(book, now, statement, terms):
        return request.refuse(*flaw)
    rule = approve if isinstance(statement.action, Approval) else open_lease
    return rule(book, now, request=request, verified=verified, statement=statement)


def approve(
    book: Book, now: Instant, *, request: Request, verified: VerifiedBytes, statement: Statement
) -> Decision[Granted]:
    """An act for exactly the call that waits, from an approval that names it. Nothing has to be consumed."""
    action = statement.action
    assert isinstance(action, Approval)
    if flaw := _answerable(book, now, statement, action.request_id, "act"):
        return request.refuse(*flaw)
    waiting = book.ledger.requests[action.request_id]
    said = (f"{action.tool}.{action.op}", action.account, action.resources, action.args_digest, action.tool_digest)
    asked = (waiting.tool, waiting.account, waiting.resources, waiting.args_digest, waiting.tool_digest)
    if said != asked:
        return request.refuse(
            Reason.APPROVAL_DIFFERS, "what was signed is not what was asked for", "look again: lever request show ID"
        )
    fact = ActGranted(
        statement.directive_id, action.request_id, statement.target.cn, statement.target.generation,
        f"{action.tool}.{action.op}",
        action.account, action.resources, action.args_digest, action.tool_digest, statement.not_before,
        statement.expires_at, verified.fingerprint, verified.signer_digest, verified.allowed_digest,
    )  # fmt: skip
    answer = Granted(statement.directive_id, statement.target.cn, action.request_id)
    return Decision((Draft(fact, (verified.raw, verified.signature)),), answer)


def open_lease(
    book: Book, now: Instant, *, request: Request, verified: VerifiedBytes, statement: Statement
) -> Decision[Granted]:
    """Reads of one account: it waits for the first, then closes by itself. It replaces the one that was open."""
    action, ledger = statement.action, book.ledger
    assert isinstance(action, LeaseAction)
    if action.request_id and (flaw := _answerable(book, now, statement, action.request_id, "lease")):
        return request.refuse(*flaw)
    if action.request_id and ledger.requests[action.request_id].account != action.account:
        return request.refuse(Reason.APPROVAL_DIFFERS, "the request is about another account")
    cn, generation = statement.target.cn, statement.target.generation
    run = ledger.run_of.get((cn, generation), "")
    if not run:
        return request.refuse(Reason.NO_RUN, f"{cn} has called nothing yet", f"lever run new {cn}")
    fact = LeaseOpened(
        statement.directive_id, action.request_id, cn, generation, run, action.account, action.ttl_seconds, action.ops,
        Instant(min(now + FIRST_READ_S * SECOND, statement.expires_at)), verified.fingerprint,
        verified.signer_digest, verified.allowed_digest,
    )  # fmt: skip
    closed = [
        Draft(LeaseClosed(one.lease, "replaced", one.used, _used_s(one.started_at, now)))
        for one in ledger.leases.values()
        if (one.cn, one.account) == (cn, action.account)
    ]
    return Decision(
        (*closed, Draft(fact, (verified.raw, verified.signature))),
        Granted(statement.directive_id, cn, action.request_id),
    )


def deny(book: Book, now: Instant, *, order: Order, id: str, note: str) -> Decision[Granted]:
    """The operator says no; the same call can't be asked again for a while."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    if flaw := _pending(book, now, id):
        return order.request.refuse(*flaw)
    fact = RequestDenied(id, order.verified.fingerprint)
    return Decision((order.accepted, Draft(fact, (note.encode(),))), Granted(id, book.ledger.requests[id].cn, id))


def close_lease(book: Book, now: Instant, *, id: str, reason: str) -> tuple[Draft, ...]:
    """The record of an early end; nothing where it is closed already: closing is never refused."""
    lease = book.ledger.leases.get(id)
    return (Draft(LeaseClosed(id, reason, lease.used, _used_s(lease.started_at, now))),) if lease else ()


def cancel(book: Book, now: Instant, *, standing: Standing) -> tuple[Draft, ...]:
    """What was signed with a key that no longer counts, and was not used."""
    ledger, bad = book.ledger, standing.bad
    acts = (act for act in ledger.acts.values() if act.state is ActState.ACTIVE and act.signed.signer_digest in bad)
    leases = (lease.lease for lease in ledger.leases.values() if lease.signed.signer_digest in bad)
    ended = (Draft(ActEnded(act.act, ActState.INVALIDATED, Reason.KEY_NOT_STANDING)) for act in acts)
    closed = (draft for id in leases for draft in close_lease(book, now, id=id, reason=Reason.KEY_NOT_STANDING))
    return (*ended, *closed)


def _used_s(started_at: Instant, now: Instant) -> int:
    return (now - started_at) // SECOND if started_at else 0


def _answerable(book: Book, now: Instant, statement: Statement, id: str, regime: str) -> Flaw | None:
    if flaw := _pending(book, now, id):
        return flaw
    waiting = book.ledger.requests[id]
    target = (statement.target.cn, statement.target.generation)
    if target != (waiting.cn, waiting.generation):
        return Reason.APPROVAL_DIFFERS, f"the request is of {waiting.cn}/{waiting.generation}", ""
    if waiting.regime != regime:
        return Reason.APPROVAL_DIFFERS, f"the request asks for {_a(waiting)}, not for {regime}", ""
    return None


def _a(waiting: Waiting) -> str:
    return f"a {waiting.regime}"


def _pending(book: Book, now: Instant, id: str) -> Flaw | None:
    waiting = book.ledger.requests.get(id)
    if waiting is None:
        return Reason.UNKNOWN_REQUEST, f"there is no request {id}", "lever request list"
    if waiting.state is not RequestState.PENDING:
        return Reason.ALREADY_RESOLVED, f"this request is {waiting.state} already", f"lever request show {id}"
    if now >= waiting.expires_at:
        return Reason.ALREADY_RESOLVED, "this request has expired", "the agent has to ask again"
    return None
