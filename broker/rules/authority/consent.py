"""The operator's answers: an act for one call, a lease for reads, or no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.errors import Reason
from broker.rules.admin import Order, flaw_of
from broker.rules.admit import Flaw, Terms, flaws_of
from broker.rules.authority import hindrance, leases, spans
from broker.rules.authority.entries import ActState, RequestState
from broker.rules.authority.entries import Request as Waiting
from broker.rules.authority.ledger import KEEP_S
from broker.rules.book import Book
from broker.rules.decision import Decision, Request
from broker.wire.act_records import ActEnded, ActGranted, LeaseOpened, RequestDenied, RequestEnded
from broker.wire.names import Cn, Instant
from broker.wire.records import Draft
from broker.wire.statement import Approval, LeaseAction, Statement
from broker.wire.times import SECOND
from broker.wire.verified import Standing, VerifiedBytes

FIRST_READ_S: Final = 60
_LIFTED_BY = {Reason.AGENT_PAUSED: "lever agent resume {cn}", Reason.EMERGENCY_STOP: "lever resume"}
_MENDED_BY = _LIFTED_BY | {
    Reason.RUN_STOPPED: "lever run new {cn}",
    Reason.BUDGET_EXCEEDED: "a fresh budget: lever run new {cn}; a larger one: lever policy apply FILE",
}


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
    if found := hindrance.of(book, now, waiting):
        return _ended(request, waiting, found)
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
    """Reads of one account: it waits for the first, then closes by itself. It replaces the one that was open, and is
    no longer than the policy and the agent's own request say."""
    action, ledger = statement.action, book.ledger
    assert isinstance(action, LeaseAction)
    if flaw := _lease_flaw(book, now, statement, action):
        return request.refuse(*flaw)
    waiting = ledger.requests[action.request_id] if action.request_id else None
    cn, generation = statement.target.cn, statement.target.generation
    if found := hindrance.of(book, now, waiting) if waiting else hindrance.of_agent(book, now, cn, generation):
        return _ended(request, waiting, found) if waiting else _unusable(request, cn, found)
    terms, account_flaw = leases.terms_of(book, cn, action.account), leases.flaw_of(book, cn, action.account)
    if account_flaw or terms is None:
        reason, detail = account_flaw or (Reason.UNKNOWN_ACCOUNT, "")
        return request.refuse(reason, f"for {cn}: {detail}", "lever policy show")
    run = ledger.runs.get(ledger.run_of.get((cn, generation), ""))
    if run is None:
        return request.refuse(Reason.NO_RUN, f"{cn} has called nothing yet", f"lever run new {cn}")
    asked_s = leases.seconds_of(waiting) if waiting else None
    fact = LeaseOpened(
        statement.directive_id, action.request_id, cn, generation, run.run, action.account,
        min(action.ttl_seconds, terms.lease_seconds, asked_s or action.ttl_seconds),
        min(action.ops, terms.lease_operations),
        Instant(min(now + FIRST_READ_S * SECOND, statement.expires_at)), verified.fingerprint,
        verified.signer_digest, verified.allowed_digest,
    )  # fmt: skip
    old = (one for one in ledger.leases.values() if (one.cn, one.account) == (cn, action.account))
    closed = [spans.closed(one, "replaced", now) for one in old]
    return Decision(
        (*closed, Draft(fact, (verified.raw, verified.signature))),
        Granted(statement.directive_id, cn, action.request_id),
    )


def _lease_flaw(book: Book, now: Instant, statement: Statement, action: LeaseAction) -> Flaw | None:
    if statement.directive_id in book.ledger.lease_ids:
        return Reason.ID_SEEN, "this lease was opened before", "sign it anew: lever lease open"
    if statement.expires_at - now > KEEP_S * SECOND:  # beyond, nobody would know that it was opened before
        return Reason.EXPIRY_BEYOND_CAP, f"a lease is signed for now, not for {KEEP_S} s from now", "--expires"
    if statement.not_before > now:  # it would count from now on all the same
        hint = "sign it when it shall begin: lever lease open; compare the clocks: lever doctor"
        return Reason.NOT_YET_VALID, "it is signed for later, and a lease opens at once", hint
    if not action.request_id:
        return None
    if flaw := _answerable(book, now, statement, action.request_id, "lease"):
        return flaw
    if book.ledger.requests[action.request_id].account != action.account:
        return Reason.APPROVAL_DIFFERS, "the request is about another account", ""
    return None


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
    return (spans.closed(lease, reason, now),) if lease else ()


def cancel(book: Book, now: Instant, *, standing: Standing) -> tuple[Draft, ...]:
    """What was signed with a key that no longer counts, and was not used."""
    ledger, bad = book.ledger, standing.bad
    acts = (act for act in ledger.acts.values() if ledger.is_alive(act) and act.signed.signer_digest in bad)
    opened = (lease for lease in ledger.leases.values() if lease.signed.signer_digest in bad)
    ended = (Draft(ActEnded(act.act, ActState.INVALIDATED, Reason.KEY_NOT_STANDING)) for act in acts)
    closed = (spans.closed(lease, Reason.KEY_NOT_STANDING, now) for lease in opened)
    return (*ended, *closed)


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


def _ended(request: Request, waiting: Waiting, found: hindrance.Hindrance) -> Decision[Granted]:
    """What could not be used is not granted, and nobody is asked for it any longer; but for what the operator alone
    has set, and lifts again: the request is there still when it is lifted."""
    reason, detail = found
    if lifted_by := _LIFTED_BY.get(reason):
        hint = f"the request waits on: {lifted_by.format(cn=waiting.cn)}, then answer it again"
        return request.refuse(reason, f"it would be refused now: {detail}", hint)
    over = Draft(RequestEnded(waiting.request, reason))
    hint = "the request is over: the agent has to ask again"
    return request.refuse(reason, f"it would be refused now: {detail}", hint, drafts=(over,))


def _unusable(request: Request, cn: Cn, found: hindrance.Hindrance) -> Decision[Granted]:
    """Nobody asked for it, so nothing is over: the operator opens it once it could be used."""
    reason, detail = found
    return request.refuse(reason, f"no read of {cn} would go through now: {detail}", _MENDED_BY[reason].format(cn=cn))


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
