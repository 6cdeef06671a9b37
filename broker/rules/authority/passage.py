"""The passage of a tool call: the numbered steps of docs/formats/policy.md on the newest state, and then the claim.

One decision: what is looked at and what is spent are the same state, so two calls can't spend one consent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.errors import Reason
from broker.rules import identity
from broker.rules.authority import budgets
from broker.rules.authority.entries import Act, ActState, Claim, Lease, Request, RequestState, Run
from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Call, Deny, Judgement, Unresolved
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.decision import Request as Asked
from broker.wire.act_records import CallClaimed, RequestOpened, RunStarted
from broker.wire.caller import Caller
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Instant
from broker.wire.records import Draft
from broker.wire.times import SECOND
from broker.wire.verified import Standing

REQUEST_S: Final = 600
DENIED_S: Final = 600
MAX_PENDING: Final = 8
MAX_IN_FLIGHT: Final = 16


@dataclass(frozen=True, slots=True)
class Ids:
    """Fresh random names, should they be needed."""

    claim: str
    request: str
    run: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """To be executed now, once, and ended by `closing.end`. arguments: the frozen bytes."""

    claim: str
    tool: PinnedTool
    arguments: bytes


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same call again: what came of it, or that it still runs."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class ConsentRequired:
    """Only the operator's consent is missing. other_arguments: what was signed was for others."""

    request: Request
    other_arguments: bool


Answer = Claimed | Repeated | ConsentRequired


@dataclass(frozen=True, slots=True)
class Passing:
    """One call on its way. resolved: the tool as its server defines it now, or why not; elapsed_s: by a clock that
    counts suspend, how long ago each lease had its first read."""

    caller: Caller
    call: Call
    call_id: str
    resolved: PinnedTool | Unresolved
    standing: Standing
    ids: Ids
    elapsed_s: Mapping[str, float]


def pass_on(book: Book, now: Instant, *, passing: Passing) -> Decision[Answer]:
    """Claim the call, or say what it lacks. Refused with a reason, or answered with what the agent is to do."""
    caller, call = passing.caller, passing.call
    asked = Asked("agent", caller.cn, "call", call.tool)
    if bar := identity.barred(book, caller, now):
        return asked.refuse(bar)
    if bar := identity.stale(book, caller):
        return asked.refuse(bar)
    ledger = book.ledger
    if ledger.stopped_at:
        return asked.refuse(Reason.EMERGENCY_STOP)
    judgement = judge(_pinned(book, passing), ledger.layers(scopes_of(book, caller.cn)), call)
    if known := _known(book, passing):
        digest = judgement.frozen.digest if judgement.frozen else None
        if known.tool != call.tool or digest not in (None, known.args_digest):
            return asked.refuse(Reason.CALL_ID_CONFLICT, "this call_id named another call")
        return Decision((), Repeated(known))
    run = ledger.runs.get(ledger.run_of.get((caller.cn, caller.generation), ""))
    if run and run.stopped:
        return asked.refuse(Reason.RUN_STOPPED, f"the run is over ({run.stopped}): the operator has to begin another")
    if over := budgets.exceeded(run, ledger.layers(scopes_of(book, caller.cn)), now):
        return asked.refuse(*over)
    if sum(claim.cn == caller.cn and not claim.outcome for claim in ledger.claims.values()) >= MAX_IN_FLIGHT:
        return asked.refuse(Reason.RATE_LIMITED, f"{MAX_IN_FLIGHT} calls are running")
    if isinstance(judgement.decision, Deny):
        deny = judgement.decision
        return asked.refuse(Reason(deny.code), deny.reason)
    started = () if run else (Draft(RunStarted(passing.ids.run, caller.cn, caller.generation, "call")),)
    span = run.run if run else passing.ids.run
    consent = _consent(book, now, passing, judgement, span)
    if consent is None:
        return _ask(book, now, passing, judgement, span, asked, started)
    return _claim(passing, judgement, span, consent, started)


def lease_ends_at(lease: Lease) -> Instant:
    """By the wall clock: its seconds from the first read, or the time by which that must have come."""
    began = lease.started_at
    return Instant(began + lease.seconds * SECOND) if began else lease.first_read_by_at


def lease_over(lease: Lease, now: Instant, elapsed_s: Mapping[str, float]) -> str:
    """Why no read goes through this lease any more; empty while one does."""
    if lease.used >= lease.operations:
        return "operations"
    if now >= lease_ends_at(lease) or elapsed_s.get(lease.lease, 0.0) >= lease.seconds:
        return "time"
    return ""


def _pinned(book: Book, passing: Passing) -> PinnedTool | Unresolved:
    """What was accepted, where the server's definition is that one."""
    server, _, name = passing.call.tool.partition(".")
    accepted = book.ledger.tool(server, name)
    if accepted is None:
        return Unresolved.UNKNOWN_TOOL
    if isinstance(passing.resolved, Unresolved):
        return passing.resolved
    same = passing.resolved.digest == accepted.digest and (server, name) not in book.ledger.changed
    return accepted if same else Unresolved.TOOL_CHANGED


def _known(book: Book, passing: Passing) -> Claim | None:
    caller = passing.caller
    key = (caller.cn, caller.generation, passing.call_id)
    claim = book.ledger.by_call_id.get(key) if passing.call_id else None
    return book.ledger.claims.get(claim) if claim else None


def _consent(book: Book, now: Instant, passing: Passing, judgement: Judgement, run: str) -> str | None:
    """What this call spends: `automatic`, `lease/ID` or `act/ID`; None where there is nothing to spend."""
    good = passing.standing.good
    if judgement.regime == "automatic":
        return "automatic"
    if judgement.regime == "lease" and not any(_binds(act, judgement) for act in _acts(book, passing)):
        for lease in book.ledger.leases.values():
            ours = (lease.cn, lease.generation, lease.account) == (*_who(passing), judgement.account)
            if ours and lease.run == run and lease.signed.signer_digest in good:
                return None if lease_over(lease, now, passing.elapsed_s) else f"lease/{lease.lease}"
        return None
    acts = (act for act in _acts(book, passing) if _binds(act, judgement) and act.signed.signer_digest in good)
    open_ones = [act for act in acts if act.not_before_at <= now < act.expires_at]
    return f"act/{min(open_ones, key=lambda act: act.expires_at).act}" if open_ones else None


def _who(passing: Passing) -> tuple[str, int]:
    return passing.caller.cn, passing.caller.generation


def _acts(book: Book, passing: Passing) -> list[Act]:
    """What was signed for this agent and tool, as it is defined now, and waits."""
    tool = passing.resolved
    digest = tool.digest if isinstance(tool, PinnedTool) else None
    bound = (*_who(passing), passing.call.tool, digest)
    active = (act for act in book.ledger.acts.values() if act.state is ActState.ACTIVE)
    return [act for act in active if (act.cn, act.generation, act.tool, act.tool_digest) == bound]


def _binds(act: Act, judgement: Judgement) -> bool:
    assert judgement.frozen
    exact = (judgement.frozen.digest, judgement.account or "", resources_of(judgement))
    return (act.args_digest, act.account, act.resources) == exact


def resources_of(judgement: Judgement) -> tuple[str, ...]:
    """What the call touches, a line each, as it is signed and shown."""
    return tuple(f"{resource.kind}:{resource.value}" for resource in judgement.resources)


def _ask(
    book: Book,
    now: Instant,
    passing: Passing,
    judgement: Judgement,
    run: str,
    asked: Asked,
    started: tuple[Draft, ...],
) -> Decision[Answer]:
    """The sole obstacle is consent: ask the operator, once for the same call."""
    assert judgement.frozen
    caller, tool, frozen = passing.caller, passing.resolved, judgement.frozen
    assert isinstance(tool, PinnedTool)
    of_agent = [one for one in book.ledger.requests.values() if (one.cn, one.generation) == _who(passing)]
    same: Callable[[Request], bool] = lambda one: _same(one, passing, judgement)  # noqa: E731
    pending = [one for one in of_agent if one.state is RequestState.PENDING and one.expires_at > now]
    other = bool(_acts(book, passing)) and judgement.regime == "act"
    if found := next(filter(same, pending), None):
        return Decision((), ConsentRequired(found, other))
    denied = (one for one in of_agent if one.state is RequestState.DENIED and one.ended_at + DENIED_S * SECOND > now)
    if refused := next(filter(same, denied), None):
        return asked.refuse(Reason.REQUEST_DENIED, refused.note or "the operator said no")
    if len(pending) >= MAX_PENDING:
        return asked.refuse(Reason.TOO_MANY_PENDING, f"{MAX_PENDING} requests wait for the operator")
    expires_at = Instant(now + REQUEST_S * SECOND)
    fact = RequestOpened(
        passing.ids.request, caller.cn, caller.generation, run, judgement.regime or "", passing.call.tool,
        judgement.account or "", resources_of(judgement), frozen.digest, tool.digest,
        tuple(digest.hex() for digest in judgement.policies), expires_at,
    )  # fmt: skip
    opened = Request(
        fact.request, fact.cn, fact.generation, fact.run, fact.regime, fact.tool, fact.account, fact.resources,
        fact.args_digest, fact.tool_digest, fact.policies, now, expires_at, (),
    )  # fmt: skip
    return Decision((*started, Draft(fact, (frozen.raw,))), ConsentRequired(opened, other))


def _same(request: Request, passing: Passing, judgement: Judgement) -> bool:
    """A lease is asked for by account; an act by the whole of the call."""
    if request.regime != judgement.regime:
        return False
    if request.regime == "lease":
        return request.account == judgement.account
    assert judgement.frozen
    return (request.tool, request.args_digest) == (passing.call.tool, judgement.frozen.digest)


def _claim(
    passing: Passing, judgement: Judgement, run: str, consent: str, started: tuple[Draft, ...]
) -> Decision[Answer]:
    """Consent is spent last, in the record that states the intent."""
    assert judgement.frozen
    assert isinstance(passing.resolved, PinnedTool)
    fact = CallClaimed(
        passing.ids.claim, passing.caller.cn, passing.caller.generation, run, passing.call.tool,
        str(judgement.tool_class or "unclassified"), judgement.account or "", resources_of(judgement),
        judgement.frozen.digest, consent, passing.call_id, tuple(digest.hex() for digest in judgement.policies),
    )  # fmt: skip
    claimed = Claimed(passing.ids.claim, passing.resolved, judgement.frozen.raw)
    return Decision((*started, Draft(fact, (judgement.frozen.raw,))), claimed)


def started_run(book: Book, caller: Caller) -> Run | None:
    """The run that this identity is in."""
    return book.ledger.runs.get(book.ledger.run_of.get((caller.cn, caller.generation), ""))
