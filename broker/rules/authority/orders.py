"""What a signed envelope, or in two cases the operator socket alone, changes of what is allowed."""

from __future__ import annotations

from hashlib import sha256

from broker.errors import Reason
from broker.rules.admin import Order, flaw_of
from broker.rules.authority import spans
from broker.rules.authority.consent import close_lease
from broker.rules.authority.entries import ActState, RequestState
from broker.rules.book import Book
from broker.rules.decision import Decision, Request
from broker.wire import accepted, policy
from broker.wire.act_records import (
    ActEnded,
    AllStopped,
    OutcomeNoted,
    PolicyApplied,
    RequestEnded,
    RunStarted,
    RunStopped,
    StopLifted,
    ToolChanged,
    ToolsAccepted,
    UsageReported,
)
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Cn, Digest, Instant
from broker.wire.records import Draft


def apply_policy(book: Book, now: Instant, *, order: Order, scope: str, raw: bytes) -> Decision[str]:
    """Put a policy in force for a scope; the answer is its version. Raises Malformed before anything is decided."""
    value = policy.parse(raw)
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    if scope != "instance" and "instance" not in book.ledger.policies:
        hint = "lever policy apply FILE, without --scope"
        return order.request.refuse(Reason.NO_POLICY, "a layer narrows the instance's policy, and there is none", hint)
    fact = PolicyApplied(scope, value.digest, order.verified.fingerprint)
    return Decision((order.accepted, Draft(fact, (raw,))), value.version)


def accept_tools(book: Book, now: Instant, *, order: Order, raw: bytes) -> Decision[tuple[str, ...]]:
    """Pin a server's tools as they stand in these bytes; their names."""
    server, tools = accepted.parse(raw)
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    names = tuple(tool.name for tool in tools)
    fact = ToolsAccepted(server, names, order.verified.fingerprint)
    return Decision((order.accepted, *_void(book, server, names), Draft(fact, (raw,))), names)


def see_tools(book: Book, now: Instant, *, server: str, seen: tuple[PinnedTool, ...]) -> Decision[tuple[str, ...]]:
    """A server's tools were looked at: those that differ from what was accepted are shut, and what waits for them is
    void. The answer: their names. Of one that is shut already nothing is written: its server could fill the disk."""
    by_name = {tool.name: tool.digest for tool in seen}
    changed: dict[str, Digest] = {}
    for tool in book.ledger.tools():
        digest = by_name.get(tool.name, Digest(b"\0" * 32))
        if tool.server == server and digest != tool.digest and (server, tool.name) not in book.ledger.changed:
            changed[tool.name] = digest
    facts = (Draft(ToolChanged(server, name, digest)) for name, digest in changed.items())
    return Decision((*_void(book, server, tuple(changed)), *facts), tuple(changed))


def _void(book: Book, server: str, names: tuple[str, ...]) -> tuple[Draft, ...]:
    """Of each request that rests on what these tools were a record of its own: its agent is told."""
    tools = {f"{server}.{name}" for name in names}
    waiting = (one for one in book.ledger.requests.values() if one.state is RequestState.PENDING and one.tool in tools)
    return tuple(Draft(RequestEnded(one.request, Reason.TOOL_CHANGED)) for one in waiting)


def shut_lease(book: Book, now: Instant, *, order: Order, id: str) -> Decision[bool]:
    """Close a lease early; False where there is none of that id, which is no error."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    drafts = close_lease(book, now, id=id, reason="operator")
    return Decision((order.accepted, *drafts), bool(drafts))


def release_lease(book: Book, now: Instant, *, cn: Cn, account: str) -> Decision[bool]:
    """The agent gives its lease back; it can only close early, and says nothing to whom it never belonged."""
    ids = [one.lease for one in book.ledger.leases.values() if (one.cn, one.account) == (cn, account)]
    drafts = tuple(draft for id in ids for draft in close_lease(book, now, id=id, reason="released"))
    return Decision(drafts, bool(drafts))


def revoke_act(book: Book, now: Instant, *, order: Order, id: str) -> Decision[bool]:
    """Take back an act that was not claimed; or whose call runs, so that it is no more should that not be sent."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    act = book.ledger.acts.get(id)
    alive = act is not None and book.ledger.is_alive(act)
    drafts = (Draft(ActEnded(id, ActState.REVOKED, "revoked")),) if alive else ()
    return Decision((order.accepted, *drafts), alive)


def new_run(book: Book, now: Instant, *, order: Order, cn: Cn, run: str) -> Decision[str]:
    """Begin a run anew: what the last one used no longer counts, and its leases are over."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    agent = book.agents.get(cn)
    if agent is None:
        return order.request.refuse(Reason.UNKNOWN_AGENT, f"no agent {cn} is enrolled", f"lever agent invite {cn}")
    last = book.ledger.runs.get(book.ledger.run_of.get((cn, agent.generation), ""))
    ended = _stopped(book, now, last.run, "replaced") if last and not last.stopped else ()
    return Decision((order.accepted, *ended, Draft(RunStarted(run, cn, agent.generation, "operator"))), run)


def stop_run(book: Book, now: Instant, *, order: Order, run: str) -> Decision[bool]:
    """End a run for good; its agent's next call begins another only where the operator says so."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    known = book.ledger.runs.get(run)
    alive = known is not None and not known.stopped
    drafts = _stopped(book, now, run, "operator") if alive else ()
    return Decision((order.accepted, *drafts), alive)


def _stopped(book: Book, now: Instant, run: str, reason: str) -> tuple[Draft, ...]:
    leases = (spans.closed(lease, "run over", now) for lease in book.ledger.leases.values() if lease.run == run)
    return (*leases, Draft(RunStopped(run, reason)))


def stop_all(book: Book, now: Instant, *, request: Request) -> Decision[bool]:
    """The emergency stop: it only narrows, so it needs no key. False where it is on already."""
    if book.ledger.stopped_at:
        return Decision((), False)
    return Decision((Draft(AllStopped(request.caller)),), True)


def lift_stop(book: Book, now: Instant, *, order: Order) -> Decision[bool]:
    """Go on; False where nothing was stopped."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    drafts = (Draft(StopLifted(order.verified.fingerprint)),) if book.ledger.stopped_at else ()
    return Decision((order.accepted, *drafts), bool(drafts))


def note_outcome(book: Book, now: Instant, *, order: Order, claim: str, note: str) -> Decision[bool]:
    """What the operator found out of a call whose outcome is unknown."""
    if flaw := flaw_of(book, now, order, book.instance):
        return order.request.refuse(*flaw)
    known = book.ledger.claims.get(claim)
    if known is None or known.outcome != "outcome_unknown":
        detail = f"no call {claim} has an unknown outcome"
        return order.request.refuse(Reason.UNKNOWN_REQUEST, detail, "lever receipt list")
    fact = OutcomeNoted(claim, order.verified.fingerprint)
    return Decision((order.accepted, Draft(fact, (note.encode(),))), True)


def report_usage(
    book: Book,
    now: Instant,
    *,
    request: Request,
    run: str,
    input_tokens: int,
    output_tokens: int,
    cost_micro: int,
    agent: str = "",
) -> Decision[str]:
    """Add figures to a run, or to the one that this agent is in: they only narrow, so the operator socket alone is
    enough. The answer: the run, empty where none goes on."""
    enrolled = book.agents.get(Cn(agent)) if agent else None
    known = book.ledger.runs.get(book.ledger.run_of.get((Cn(agent), enrolled.generation), "") if enrolled else run)
    if known is None or known.stopped:
        return Decision((), "")
    fact = UsageReported(known.run, input_tokens, output_tokens, cost_micro, request.caller)
    return Decision((Draft(fact),), known.run)


def digest_of(raw: bytes) -> str:
    """By which an envelope's params bind an attachment."""
    return sha256(raw).hexdigest()
