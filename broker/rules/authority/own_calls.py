"""What an agent asks of its own things: how a request of its stands, and to have its lease back."""

from __future__ import annotations

from broker.rules import identity
from broker.rules.authority import leases, orders, rows
from broker.rules.authority.entries import Claim, Request, RequestState
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.decision import Request as Asked
from broker.wire import tool_results
from broker.wire.caller import Caller
from broker.wire.names import Instant
from broker.wire.tool_results import Result


def release(book: Book, now: Instant, *, caller: Caller, account: str) -> Decision[bool]:
    """Give a lease back; closing it is never refused but to whoever may ask for nothing by now."""
    if bar := identity.barred(book, caller, now) or identity.stale(book, caller):
        return Asked("agent", caller.cn, "lease_release").refuse(bar)
    return orders.release_lease(book, now, cn=caller.cn, account=account)


def status(book: Book, now: Instant, *, caller: Caller, id: str) -> Decision[Result | Claim]:
    """How a request of this caller's stands, and what came of its act. Settled, it needs no pointer any more."""
    if bar := identity.barred(book, caller, now) or identity.stale(book, caller):
        return Asked("agent", caller.cn, "request_status").refuse(bar)
    request = book.ledger.requests.get(id)
    if request is None or (request.cn, request.generation) != (caller.cn, caller.generation):
        return Decision((), tool_results.refused("not_found", "no request of yours has this id"))
    if request.state is not RequestState.PENDING:
        book.looked_at.add(id)
    act = book.ledger.acts.get(request.answer)
    claim = book.ledger.claims.get(act.claim) if act and act.claim else None
    if claim:
        return Decision((), claim if claim.outcome else tool_results.status(request, "running"))
    return Decision((), tool_results.status(request, rows.state_of(book, request, now)))


def shortened(book: Book, request: Request) -> dict[str, object]:
    """What the deprecated `minutes` comes to: the seconds of the lease that this request waits for."""
    terms = leases.terms_of(book, request.cn, request.account)
    seconds = leases.seconds_of(request) or (terms.lease_seconds if terms else None)
    return {"deprecated": "minutes", "effective_seconds": seconds}


def opened(book: Book, id: str) -> dict[str, object]:
    """The same, of the lease that answered it, as long as that is open: the operator may have signed for less."""
    request = book.ledger.requests.get(id)
    lease = book.ledger.leases.get(request.answer) if request else None
    return {"effective_seconds": lease.seconds} if lease else {}
