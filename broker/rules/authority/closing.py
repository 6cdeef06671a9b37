"""The ends: of a call, of what a crash left open, of what time alone closes."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType

from broker.rules.authority import spans
from broker.rules.authority.entries import ActState, RequestState
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.wire import frame
from broker.wire.act_records import ActEnded, CallEnded, RequestEnded
from broker.wire.names import Digest, Instant
from broker.wire.records import BrokerStarted, Draft

_NOTHING = Digest(sha256().digest())


def end(book: Book, now: Instant, *, claim: str, outcome: str, answer: bytes) -> Decision[str]:
    """What came of a claim, once; a second end of the same claim changes nothing. An answer that is larger than any
    payload is not stored: nothing that it may be keeps the end from being written."""
    known = book.ledger.claims.get(claim)
    if known is None:  # it ended, and nobody can ask for it any more
        return Decision((), outcome)
    if known.outcome:
        return Decision((), known.outcome)
    fact = CallEnded(claim, outcome, Digest(sha256(answer).digest()), len(answer))
    stored = len(answer) <= frame.MAX_FRAME_BYTES and book.ledger.stores(known, len(answer), now)
    return Decision((Draft(fact, (answer,) if stored else ()),), outcome)


def settle(book: Book, now: Instant, *, started: BrokerStarted) -> Decision[int]:
    """A start, once: whatever an earlier life began and did not end is unknown, and never tried again; its leases are
    over, each with a record of its own before the start's. How many calls there were."""
    open_ones = tuple(book.ledger.running)
    unknown = (Draft(CallEnded(claim, "outcome_unknown", _NOTHING, 0)) for claim in open_ones)
    leases = (spans.closed(lease, "restart", now) for lease in book.ledger.leases.values())
    return Decision((*unknown, *leases, Draft(started)), len(open_ones))


def lapse(
    book: Book, now: Instant, *, elapsed_s: Mapping[str, float], waited_s: Mapping[str, float] = MappingProxyType({})
) -> Decision[tuple[str, ...]]:
    """What time closes: requests, acts, leases. The answer: the agents whose requests ended, to be told."""
    ledger = book.ledger
    requests = [one for one in ledger.requests.values() if one.state is RequestState.PENDING and one.expires_at <= now]
    acts = [one for one in ledger.acts.values() if one.state is ActState.ACTIVE and one.expires_at <= now]
    leases = [(one, spans.over(one, now, elapsed_s, waited_s)) for one in ledger.leases.values()]
    return Decision(
        (
            *(Draft(RequestEnded(one.request, "expired")) for one in requests),
            *(Draft(ActEnded(one.act, ActState.EXPIRED, "expired")) for one in acts),
            *(spans.closed(one, why, now) for one, why in leases if why),
        ),
        tuple(one.cn for one in requests),
    )
