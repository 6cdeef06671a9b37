"""What an agent may do about a lease itself: ask for one, and give it back."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from broker.errors import Reason
from broker.rules import identity
from broker.rules.authority.entries import Request, RequestState
from broker.rules.authority.passage import MAX_PENDING, REQUEST_S, Answer, ConsentRequired, Ids
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.decision import Request as Asked
from broker.wire.act_records import RequestOpened, RunStarted
from broker.wire.caller import Caller
from broker.wire.names import Digest, Instant
from broker.wire.policy_terms import Account
from broker.wire.records import Draft
from broker.wire.times import SECOND

NO_ARGUMENTS: Final = b"{}"


def terms_of(book: Book, caller: Caller, account: str) -> Account | None:
    """What the policy says of reading this account, the least of all layers; None where it knows none."""
    known = [
        layer.accounts[account] for layer in book.ledger.layers(scopes_of(book, caller.cn)) if account in layer.accounts
    ]
    if not known:
        return None
    return Account(
        any(terms.sensitive for terms in known),
        min(terms.lease_seconds for terms in known),
        min(terms.lease_operations for terms in known),
    )


def ask(book: Book, now: Instant, *, caller: Caller, account: str, ids: Ids) -> Decision[Answer]:
    """Ask the operator for a lease, before any read needs it."""
    asked = Asked("agent", caller.cn, "lease_request", account)
    if bar := identity.barred(book, caller, now) or identity.stale(book, caller):
        return asked.refuse(bar)
    ledger = book.ledger
    if ledger.stopped_at:
        return asked.refuse(Reason.EMERGENCY_STOP)
    terms = terms_of(book, caller, account)
    if terms is None:
        return asked.refuse(Reason.UNKNOWN_ACCOUNT, "there is no account of that name")
    if terms.sensitive:
        return asked.refuse(Reason.DENIED_BY_RULE, "this account has no lease: each read is asked for by its own call")
    who = (caller.cn, caller.generation)
    run = ledger.runs.get(ledger.run_of.get(who, ""))
    if run and run.stopped:
        return asked.refuse(Reason.RUN_STOPPED, f"the run is over ({run.stopped})")
    of_agent = [one for one in ledger.requests.values() if (one.cn, one.generation) == who]
    pending = [one for one in of_agent if one.state is RequestState.PENDING and one.expires_at > now]
    if found := next((one for one in pending if (one.regime, one.account) == ("lease", account)), None):
        return Decision((), ConsentRequired(found, False))
    if len(pending) >= MAX_PENDING:
        return asked.refuse(Reason.TOO_MANY_PENDING, f"{MAX_PENDING} requests wait for the operator")
    started = () if run else (Draft(RunStarted(ids.run, caller.cn, caller.generation, "call")),)
    expires_at, digest = Instant(now + REQUEST_S * SECOND), Digest(sha256(NO_ARGUMENTS).digest())
    fact = RequestOpened(
        ids.request, caller.cn, caller.generation, run.run if run else ids.run, "lease", "", account, (), digest,
        Digest(bytes(32)), (), expires_at,
    )  # fmt: skip
    opened = Request(
        fact.request, fact.cn, fact.generation, fact.run, "lease", "", account, (), digest, fact.tool_digest, (), now,
        expires_at, (),
    )  # fmt: skip
    return Decision((*started, Draft(fact, (NO_ARGUMENTS,))), ConsentRequired(opened, False))
