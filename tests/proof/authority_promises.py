"""What an answer promises of requests, acts, leases, calls and budgets, asked of the book by the rules themselves."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from broker.errors import Reason
from broker.rules.authority import closing, consent
from broker.rules.authority.asking import DENIED_S
from broker.rules.authority.entries import ActState, RequestState
from broker.rules.authority.ledger import KEEP_ANSWER_S, KEEP_PLAIN_S, KEEP_S
from broker.rules.authority.passage import Claimed, Passing, Repeated, pass_on
from broker.rules.book import Book
from broker.wire.act_records import CallClaimed
from broker.wire.names import Digest, Instant
from broker.wire.records import BrokerStarted
from broker.wire.times import SECOND
from tests.proof.authority_cast import passing
from tests.proof.cast import A, B, caller, order
from tests.proof.life import LEASES, Promise

_OTHERS = (caller(B, 1), caller(A, 2))


def claims(book: Book, now: Instant, call: Passing) -> str:
    """What this call would spend if it were made now; empty when it would not be carried out."""
    decision = pass_on(book, now, passing=call)
    spent = (draft.fact.consent for draft in decision.drafts if isinstance(draft.fact, CallClaimed))
    return next(spent, "") if isinstance(decision.answer, Claimed) else ""


def _remembered(at: Instant, now: Instant) -> bool:
    return now < at + KEEP_S * SECOND


def _forgettable(at: Instant, now: Instant) -> bool:
    """Where no name and no act leads to a call."""
    return now >= at + KEEP_PLAIN_S * SECOND


def in_force(scope: str, digest: Digest) -> Promise:
    """This policy and no other is in force for the scope, with its exact bytes."""

    def holds(book: Book, now: Instant) -> None:
        force = book.ledger.policies[scope]
        assert force.policy, f"the policy of {scope} can't be read"
        assert force.digest == force.policy.digest == digest

    return Promise(holds, f"policy {scope}")


def accepted(server: str, digests: dict[str, Digest]) -> Promise:
    """These definitions are pinned."""

    def holds(book: Book, now: Instant) -> None:
        there = {tool.name: tool.digest for tool in book.ledger.tools() if tool.server == server}
        assert there == digests, f"tools of {server}"
        assert not book.ledger.changed

    return Promise(holds, "tools")


def shut(tool: str) -> Promise:
    """Its server defines it otherwise: nothing of it is callable, as it is or as it was."""

    def holds(book: Book, now: Instant) -> None:
        assert not claims(book, now, passing(tool, "any")), f"{tool} is callable"

    return Promise(holds, "tools")


def waits(request: str, args: bytes) -> Promise:
    """It waits for the operator, who is shown these bytes."""

    def holds(book: Book, now: Instant) -> None:
        known = book.ledger.requests[request]
        assert (known.state, known.args) == (RequestState.PENDING, args), f"{request} is {known.state}"

    return Promise(holds, f"request {request}")


def resolved(request: str, state: RequestState, at: Instant) -> Promise:
    """It came to this end, and to no other."""

    def holds(book: Book, now: Instant) -> None:
        if _remembered(at, now):
            assert book.ledger.requests[request].state is state, f"{request} is {book.ledger.requests[request].state}"

    return Promise(holds)


def denied(request: str, call: Passing, at: Instant) -> list[Promise]:
    """The operator said no: the same call is neither carried out nor asked for again, for a while."""

    def holds(book: Book, now: Instant) -> None:
        if now < at + DENIED_S * SECOND:
            assert pass_on(book, now, passing=call).refused, f"{request} was denied"

    return [resolved(request, RequestState.DENIED, at), Promise(holds, f"denied {request}")]


def active(act: str, raw: bytes) -> Promise:
    """It waits for its call, resting on the bytes that were signed."""

    def holds(book: Book, now: Instant) -> None:
        known = book.ledger.acts[act]
        assert (known.state, known.signed.statement) == (ActState.ACTIVE, raw), f"act {act} is {known.state}"
        assert known.signed.signature

    return Promise(holds, f"act {act}")


def over(act: str, state: ActState, call: Passing, at: Instant) -> Promise:
    """It ended so, and carries nothing any more."""

    def holds(book: Book, now: Instant) -> None:
        known = book.ledger.acts.get(act)
        assert known or not _remembered(at, now), f"act {act} is forgotten"
        assert known is None or known.state is state, f"act {act} is {known.state}"
        assert claims(book, now, call) != f"act/{act}"

    return Promise(holds, f"over {act}")


def spent(act: str, claim: str, call: Passing, at: Instant) -> Promise:
    """One call had it: no other ever gets it, whoever asks and whatever became of that one."""

    def holds(book: Book, now: Instant) -> None:
        known = book.ledger.acts.get(act)
        assert known or not _remembered(at, now), f"act {act} is forgotten"
        assert known is None or (known.state, known.claim) == (ActState.CLAIMED, claim), f"act {act} is to be had again"
        for each in _by_everybody(call):
            assert claims(book, now, each) != f"act/{act}", f"act {act} is spent again"

    return Promise(holds, f"spent {act}")


def _by_everybody(call: Passing) -> Iterator[Passing]:
    path = str(call.call.arguments["path"])  # type: ignore[index,call-overload]
    yield call
    for who in _OTHERS:
        yield passing("write_file", path, who=who)


def begun(claim: str, call: Passing, at: Instant) -> Promise:
    """It is not begun again under its own call_id: what came of it is told, or that nobody knows yet."""

    def holds(book: Book, now: Instant) -> None:
        if not _remembered(at, now):
            return
        plain = not call.call_id and _forgettable(at, now)
        assert plain or claim in book.ledger.claims, f"{claim} is not there"
        if call.call_id:
            decision = pass_on(book, now, passing=call)
            assert decision.refused or isinstance(decision.answer, Repeated), f"{claim} is made twice"

    return Promise(holds, f"begun {claim}")


def came_to(claim: str, outcome: str, answer: bytes, at: Instant) -> Promise:
    """This came of it, in these bytes; a start settles it no other way."""

    def holds(book: Book, now: Instant) -> None:
        if not _remembered(at, now):
            return
        known = book.ledger.claims.get(claim)
        if known is None:
            assert _forgettable(at, now), f"{claim} is forgotten"
            assert not answer
            assert outcome != "outcome_unknown"
            return
        assert known.outcome == outcome, f"{claim} is {known.outcome}"
        if now < at + KEEP_ANSWER_S * SECOND:
            told = [ref.digest for ref in known.answer_refs]
            assert told == ([sha256(answer).digest()] if answer else []), f"the answer to {claim} is another"
        settled = [draft.fact for draft in closing.settle(book, now, started=BrokerStarted("0", 0)).drafts]
        assert all(getattr(fact, "claim", "") != claim for fact in settled)

    return Promise(holds)


def counted(run: str, calls: int, cost_micro: int = 0) -> Promise:
    """A budget is never fuller than it was."""

    def holds(book: Book, now: Instant) -> None:
        known = book.ledger.runs.get(run)
        if known and not known.stopped:
            assert known.calls >= calls, f"{run}: {known.calls} calls of {calls}"
            assert known.cost_micro >= cost_micro

    return Promise(holds, f"calls {run}")


def stopped(run: str) -> Promise:
    """It never goes on."""

    def holds(book: Book, now: Instant) -> None:
        known = book.ledger.runs.get(run)
        assert known is None or known.stopped, f"{run} goes on"
        assert run not in book.ledger.run_of.values() or known

    return Promise(holds)


def leased(lease: str, used: int, raw: bytes) -> Promise:
    """It is open, until a start or its end, and has not more reads left."""

    def holds(book: Book, now: Instant) -> None:
        known = book.ledger.leases[lease]
        assert (known.used, known.signed.statement) == (used, raw), f"{lease}: {known.used} of {used}"

    return Promise(holds, LEASES)


def closed(lease: str) -> Promise:
    """No read goes through it again."""

    def holds(book: Book, now: Instant) -> None:
        assert lease not in book.ledger.leases, f"{lease} is open again"
        assert claims(book, now, passing("read_mail")) != f"lease/{lease}"

    return Promise(holds)


def all_stopped(on: bool) -> Promise:
    """The emergency stop holds; or it was lifted."""

    def holds(book: Book, now: Instant) -> None:
        assert bool(book.ledger.stopped_at) is on
        if on:
            for tool in ("look", "read_mail", "write_file"):
                refused = pass_on(book, now, passing=passing(tool, "any")).refused
                assert refused, f"{tool} is callable while everything is stopped"
                assert refused.reason in (Reason.EMERGENCY_STOP, Reason.AGENT_REVOKED, Reason.GENERATION_STALE)

    return Promise(holds, "stop")


def noted(claim: str, at: Instant) -> Promise:
    """The operator said what became of it."""

    def holds(book: Book, now: Instant) -> None:
        if _remembered(at, now):
            assert book.ledger.claims[claim].noted

    return Promise(holds)


def answered(request: str) -> Promise:
    """A second answer of the operator changes nothing."""

    def holds(book: Book, now: Instant) -> None:
        again = consent.deny(book, now, order=order("request_deny", now, "a second answer"), id=request, note="")
        assert again.refused, f"{request} can be answered again"

    return Promise(holds)
