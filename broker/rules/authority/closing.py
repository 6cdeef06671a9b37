"""The ends: of a call, of what a crash left open, of what time alone closes."""

from __future__ import annotations

from collections.abc import Mapping

from broker.rules.authority.entries import ActState, RequestState
from broker.rules.authority.passage import lease_over
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.wire.act_records import ActEnded, CallEnded, LeaseClosed, RequestEnded
from broker.wire.names import Instant
from broker.wire.records import Draft
from broker.wire.times import SECOND

OUTCOMES = ("done", "failed", "not_dispatched", "cancelled", "outcome_unknown")


def end(book: Book, now: Instant, *, claim: str, outcome: str, answer: bytes) -> Decision[str]:
    """What came of a claim, once; a second end of the same claim changes nothing."""
    known = book.ledger.claims[claim]
    if known.outcome:
        return Decision((), known.outcome)
    return Decision((Draft(CallEnded(claim, outcome), (answer,)),), outcome)


def settle(book: Book, now: Instant) -> Decision[int]:
    """At a start: whatever was begun and not ended is unknown, and never tried again. How many there were."""
    open_ones = [claim.claim for claim in book.ledger.claims.values() if not claim.outcome]
    return Decision(tuple(Draft(CallEnded(claim, "outcome_unknown"), (b"",)) for claim in open_ones), len(open_ones))


def lapse(book: Book, now: Instant, *, elapsed_s: Mapping[str, float]) -> Decision[tuple[str, ...]]:
    """What time closes: requests, acts, leases. The answer: the agents whose requests ended, to be told."""
    ledger = book.ledger
    requests = [one for one in ledger.requests.values() if one.state is RequestState.PENDING and one.expires_at <= now]
    acts = [one for one in ledger.acts.values() if one.state is ActState.ACTIVE and one.expires_at <= now]
    leases = [(one, lease_over(one, now, elapsed_s)) for one in ledger.leases.values()]
    return Decision(
        (
            *(Draft(RequestEnded(one.request, "expired")) for one in requests),
            *(Draft(ActEnded(one.act, ActState.EXPIRED, "expired")) for one in acts),
            *(Draft(LeaseClosed(one.lease, why, one.used, _used_s(one.started_at, now))) for one, why in leases if why),
        ),
        tuple(one.cn for one in requests),
    )


def _used_s(started_at: Instant, now: Instant) -> int:
    return (now - started_at) // SECOND if started_at else 0
