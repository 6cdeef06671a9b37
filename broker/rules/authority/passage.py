"""The passage of a tool call: the numbered steps of docs/formats/policy.md on the newest state, and then the claim.

One decision: what is looked at and what is spent are the same state, so two calls can't spend one consent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from broker.errors import Malformed, Reason
from broker.rules.authority import asking, caller_steps, spans
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.entries import Act, ActState, Claim, Run, Signed
from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Call, Code, Deny, Judgement, Unresolved
from broker.rules.authority.resolving import as_defined
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.decision import Request as Asked
from broker.wire.act_records import ActEnded, CallClaimed, RequestOpened, RunStarted
from broker.wire.caller import Caller
from broker.wire.catalogue import PinnedTool
from broker.wire.frozen import freeze
from broker.wire.names import Cn, Digest, Generation, Instant
from broker.wire.records import Draft
from broker.wire.verified import Standing


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
class LookFirst:
    """Nothing speaks against it but that the server was not asked yet what it defines."""


Answer = Claimed | Repeated | ConsentRequired | LookFirst


@dataclass(frozen=True, slots=True)
class Passing:
    """One call on its way. resolved: the tool as its server defines it now, or why not; elapsed_s, waited_s: by a clock
    that counts suspend, how long ago each lease had its first read, and was opened; looked: False where resolved is
    what was accepted, since the server was not asked: then the call can be refused, and nothing more."""

    caller: Caller
    call: Call
    call_id: str
    resolved: PinnedTool | Unresolved
    standing: Standing
    ids: Ids
    elapsed_s: Mapping[str, float]
    waited_s: Mapping[str, float] = field(default_factory=dict)
    looked: bool = True


def pass_on(book: Book, now: Instant, *, passing: Passing) -> Decision[Answer]:
    """Claim the call, or say what it lacks. Refused with a reason, or answered with what the agent is to do."""
    caller, call = passing.caller, passing.call
    asked = Asked("agent", caller.cn, "call", call.tool)
    if bar := caller_steps.who_bar(book, now, caller):
        return asked.refuse(*bar)
    if known := _known(book, passing):
        if (known.tool, known.args_digest) != (call.tool, _digest(call)):
            return asked.refuse(Reason.CALL_ID_CONFLICT, "this call_id named another call")
        return Decision((), Repeated(known))
    layers = book.ledger.layers(scopes_of(book, caller.cn))
    run = caller_steps.started_run(book, caller)
    if bar := caller_steps.run_bar(run, layers, now) or caller_steps.rate_bar(book, caller):
        return asked.refuse(*bar)
    judgement = judge(as_defined(book.ledger, call.tool, passing.resolved), layers, call)
    if not passing.looked and not isinstance(judgement.decision, Deny):
        return Decision((), LookFirst())
    decision = _decide(book, now, passing, judgement, run, asked)
    return replace(decision, drafts=(*_void(book, passing, judgement), *decision.drafts))


def _decide(
    book: Book, now: Instant, passing: Passing, judgement: Judgement, run: Run | None, asked: Asked
) -> Decision[Answer]:
    """Refuse, spend a consent, or ask for one."""
    if isinstance(judgement.decision, Deny):
        deny = judgement.decision
        return asked.refuse(Reason(deny.code), deny.reason, rule=deny.rule, policies=_policies(judgement))
    who, span = _who(passing), run.run if run else passing.ids.run
    started = () if run else (Draft(RunStarted(span, *who, "call")),)
    if judgement.regime == "automatic":
        return _unsigned(book, now, passing, judgement, asked) or _claim(passing, judgement, span, "automatic", started)
    consents = _consents(book, now, passing, judgement, span)
    good = [name for name, signed in consents if signed.signer_digest in passing.standing.good]
    if good:
        full = None if good[0].startswith("act/") else _unsigned(book, now, passing, judgement, asked)
        return full or _claim(passing, judgement, span, good[0], started)
    if consents:
        return asked.refuse(Reason.SIGNERS_UNAVAILABLE, "the operator's signature can't be checked for now; try later")
    return _ask(book, now, passing, judgement, span, asked, started)


def _unsigned(
    book: Book, now: Instant, passing: Passing, judgement: Judgement, asked: Asked
) -> Decision[Answer] | None:
    """The refusal where the journal would take too much of what nobody signed."""
    assert judgement.frozen
    size_bytes = len(judgement.frozen.raw)
    if book.ledger.holds(passing.caller.cn, passing.call_id, size_bytes, now):
        return None
    return asked.refuse(Reason.RATE_LIMITED, "what is kept of arguments and answers in a day is used up; try later")


def _known(book: Book, passing: Passing) -> Claim | None:
    caller = passing.caller
    key = (caller.cn, caller.generation, passing.call_id)
    claim = book.ledger.by_call_id.get(key) if passing.call_id else None
    return book.ledger.claims.get(claim) if claim else None


def _digest(call: Call) -> Digest | None:
    try:
        return freeze(call.arguments).digest
    except Malformed:
        return None


def _void(book: Book, passing: Passing, judgement: Judgement) -> tuple[Draft, ...]:
    """What was signed for this very call, and is no longer what the call would be: it does not wait for better days."""
    deny, bound = judgement.decision, (*_who(passing), passing.call.tool)
    acts = [act for act in _active(book) if (act.cn, act.generation, act.tool) == bound]
    if not acts or (isinstance(deny, Deny) and deny.code is Code.SERVER_UNAVAILABLE):
        return ()
    digest, fits = _digest(passing.call), {act.act for act in _acts(book, passing)}
    same = (act for act in acts if act.args_digest == digest)
    void = [act for act in same if isinstance(deny, Deny) or act.act not in fits or not _binds(act, judgement)]
    reason = str(deny.code) if isinstance(deny, Deny) else str(Reason.APPROVAL_DIFFERS)
    return tuple(Draft(ActEnded(act.act, ActState.INVALIDATED, reason)) for act in void)


def _consents(book: Book, now: Instant, passing: Passing, judgement: Judgement, run: str) -> list[tuple[str, Signed]]:
    """What this call may spend, the first of it first: an act for just this call, else the account's lease."""
    acts = [act for act in _acts(book, passing) if _binds(act, judgement) and act.not_before_at <= now < act.expires_at]
    found = [(f"act/{act.act}", act.signed) for act in sorted(acts, key=lambda act: act.expires_at)]
    if judgement.lease:
        whose = (*_who(passing), judgement.account, run)
        leases = (one for one in book.ledger.leases.values() if (one.cn, one.generation, one.account, one.run) == whose)
        assert judgement.frozen
        call = passing.call.tool, judgement.frozen.digest
        open_ones = (
            one
            for one in (spans.within(lease, judgement.lease) for lease in leases)
            if not spans.over(one, now, passing.elapsed_s, passing.waited_s) and not spans.is_kept(one, *call)
        )
        found += [(f"lease/{lease.lease}", lease.signed) for lease in open_ones]
    return found


def _who(passing: Passing) -> tuple[Cn, Generation]:
    return passing.caller.cn, passing.caller.generation


def _active(book: Book) -> Iterator[Act]:
    return (act for act in book.ledger.acts.values() if act.state is ActState.ACTIVE)


def _acts(book: Book, passing: Passing) -> list[Act]:
    """What was signed for this agent and tool, as it is defined now, and waits."""
    tool = passing.resolved
    digest = tool.digest if isinstance(tool, PinnedTool) else None
    bound = (*_who(passing), passing.call.tool, digest)
    return [act for act in _active(book) if (act.cn, act.generation, act.tool, act.tool_digest) == bound]


def _binds(act: Act, judgement: Judgement) -> bool:
    assert judgement.frozen
    exact = (judgement.frozen.digest, judgement.account or "", resources_of(judgement))
    return (act.args_digest, act.account, act.resources) == exact


def _policies(judgement: Judgement) -> tuple[str, ...]:
    return tuple(digest.hex() for digest in judgement.policies)


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
    """The sole obstacle is consent."""
    frozen, tool = judgement.frozen, passing.resolved
    assert frozen
    assert isinstance(tool, PinnedTool)
    wanted = RequestOpened(
        passing.ids.request, *_who(passing), run, judgement.regime or "", passing.call.tool, judgement.account or "",
        resources_of(judgement), frozen.digest, tool.digest, _policies(judgement), judgement.decision.reason,
        asking.until(now),
    )  # fmt: skip
    others = any(act.args_digest != frozen.digest for act in _acts(book, passing))
    other = others and judgement.regime == "act"
    decision = asking.ask(
        book, now, asked=asked, wanted=wanted, args=frozen.raw, started=started, other_arguments=other
    )
    return Decision(decision.drafts, decision.answer, decision.refused, decision.noted)


def _claim(
    passing: Passing, judgement: Judgement, run: str, consent: str, started: tuple[Draft, ...]
) -> Decision[Answer]:
    """Consent is spent last, in the record that states the intent."""
    assert judgement.frozen
    assert isinstance(passing.resolved, PinnedTool)
    fact = CallClaimed(
        passing.ids.claim, *_who(passing), run, passing.call.tool,
        str(judgement.tool_class or "unclassified"), judgement.account or "", resources_of(judgement),
        judgement.frozen.digest, passing.resolved.digest, consent, passing.call_id, _policies(judgement),
    )  # fmt: skip
    claimed = Claimed(passing.ids.claim, passing.resolved, judgement.frozen.raw)
    return Decision((*started, Draft(fact, (judgement.frozen.raw,))), claimed)
