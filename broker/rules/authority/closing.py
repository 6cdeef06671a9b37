"""The ends: of a call, of what a crash left open, of what time alone closes."""

from __future__ import annotations

from collections.abc import Mapping

from broker.rules.authority import spans
from broker.rules.authority.entries import ActState, RequestState
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.wire.act_records import ActEnded, CallEnded, RequestEnded
from broker.wire.names import Instant
from broker.wire.records import Draft


def end(book: Book, now: Instant, *, claim: str, outcome: str, answer: bytes) -> Decision[str]:
    """What came of a claim, once; a second end of the same claim changes nothing."""
    known = book.ledger.claims[claim]
    if known.outcome:
        return Decision((), known.outcome)
    return Decision((Draft(CallEnded(claim, outcome), (answer,)),), outcome)


def settle(book: Book, now: Instant) -> Decision[int]:
    """At a start: whatever was begun and not ended is unknown, and never tried again; leases are over. How many calls
    there were."""
    open_ones = tuple(book.ledger.running)
    unknown = (Draft(CallEnded(claim, "outcome_unknown"), (b"",)) for claim in open_ones)
    leases = (spans.closed(lease, "restart", now) for lease in book.ledger.leases.values())
    return Decision((*unknown, *leases), len(open_ones))


def lapse(book: Book, now: Instant, *, elapsed_s: Mapping[str, float]) -> Decision[tuple[str, ...]]:
    """What time closes: requests, acts, leases. The answer: the agents whose requests ended, to be told."""
    ledger = book.ledger
    requests = [one for one in ledger.requests.values() if one.state is RequestState.PENDING and one.expires_at <= now]
    acts = [one for one in ledger.acts.values() if one.state is ActState.ACTIVE and one.expires_at <= now]
    leases = [(one, spans.over(one, now, elapsed_s)) for one in ledger.leases.values()]
    return Decision(
        (
            *(Draft(RequestEnded(one.request, "expired")) for one in requests),
            *(Draft(ActEnded(one.act, ActState.EXPIRED, "expired")) for one in acts),
            *(spans.closed(one, why, now) for one, why in leases if why),
        ),
        tuple(one.cn for one in requests),
    )
