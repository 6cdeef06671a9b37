"""May this verified statement become a directive?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.errors import Reason
from broker.rules.authority.judgement import Deny, Judgement
from broker.rules.authority.signed_call import freeze_call, signed_call
from broker.rules.book import LEEWAY_S, Book
from broker.rules.decision import Decision, Request
from broker.rules.entries import Enrolment
from broker.wire import statement as wire
from broker.wire.names import SELFTEST, DirectiveId, Instance, Instant
from broker.wire.records import DirectiveAdmitted, Draft, SelftestPassed
from broker.wire.statement import BoundAction, Statement
from broker.wire.times import SECOND
from broker.wire.verified import VerifiedBytes

Flaw = tuple[Reason, str, str]


@dataclass(frozen=True, slots=True)
class Terms:
    """What this instance asks of a statement. declares(tool, op): is that operation declared in lever.yaml?"""

    instance: Instance
    expiry_max_s: int
    max_active_per_agent: int
    declares: Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Admitted:
    """scheduled: the window opens later; enforced: the gateway will hold its call to what was signed."""

    id: DirectiveId
    scheduled: bool
    enforced: bool


def admit(
    book: Book, now: Instant, *, request: Request, verified: VerifiedBytes, statement: Statement, terms: Terms
) -> Decision[Admitted]:
    """Store the statement as an active directive, or refuse and say why."""
    if flaw := flaws_of(book, now, statement, terms):
        return request.refuse(*flaw)
    if statement.directive_id in book.ledger.requests:  # two pointers of one id could not be told apart
        return request.refuse(Reason.ID_SEEN, "this is the id of an agent's request", "sign it anew with another id")
    action, judgement = statement.action, signed_call(book, statement)
    if judgement and (denied := _denied(judgement, statement)):
        return request.refuse(*denied)
    tool, op = (action.tool, action.op) if isinstance(action, BoundAction) else ("", "")
    fact = DirectiveAdmitted(
        id=statement.directive_id,
        cn=statement.target.cn,
        generation=statement.target.generation,
        kind=action.kind,
        tool=tool,
        op=op,
        content_digest=wire.action_digest(action),
        issued_at=statement.issued_at,
        not_before_at=statement.not_before,
        expires_at=statement.expires_at,
        fingerprint=verified.fingerprint,
        signer_digest=verified.signer_digest,
        allowed_digest=verified.allowed_digest,
    )
    is_call = action.kind == "tool_call"  # an approval that answers no request allows nothing
    frozen = (Draft(freeze_call(book, statement, judgement)),) if judgement and is_call else ()
    answer = Admitted(statement.directive_id, statement.not_before > now, bool(frozen))
    return Decision((Draft(fact, (verified.raw, verified.signature)), *frozen), answer)


def _denied(judgement: Judgement, statement: Statement) -> Flaw | None:
    """A call that the policy denies to its target is refused here: a signature never makes it callable."""
    if not isinstance(judgement.decision, Deny):
        return None
    deny, cn = judgement.decision, statement.target.cn
    return Reason(deny.code), f"{cn} could not make this call: {deny.reason}", f"lever policy explain {cn}"


def selftest(
    book: Book, now: Instant, *, request: Request, verified: VerifiedBytes, statement: Statement, terms: Terms
) -> Decision[None]:
    """All of admission that does not depend on a target; nothing is stored."""
    if flaw := _window_flaw(statement, now, terms):
        return request.refuse(*flaw)
    return Decision((Draft(SelftestPassed(verified.fingerprint)),))


def flaws_of(book: Book, now: Instant, statement: Statement, terms: Terms) -> Flaw | None:
    """What is wrong with the statement, or with whom it is for."""
    action = statement.action
    brokered = isinstance(action, BoundAction) and book.ledger.tool(action.tool, action.op) is not None
    return flaw_of(statement, now, terms, brokered=brokered) or _target_flaw(book, statement, terms)


def flaw_of(statement: Statement, now: Instant, terms: Terms, *, brokered: bool = False) -> Flaw | None:
    """What is wrong with the statement itself: reason, detail, hint. brokered: its tool is behind the gateway."""
    if statement.target.cn == SELFTEST:
        return Reason.RESERVED_NAME, "the name selftest is reserved", "lever directive selftest"
    action = statement.action
    if isinstance(action, BoundAction) and not brokered and not terms.declares(action.tool, action.op):
        return (
            Reason.TOOL_UNDECLARED,
            f"{action.tool}.{action.op} is neither brokered nor declared",
            f"declare it in lever.yaml: tools: {{{action.tool}: [{action.op}]}}; then restart the broker",
        )
    return _window_flaw(statement, now, terms)


def _window_flaw(statement: Statement, now: Instant, terms: Terms) -> Flaw | None:
    if statement.instance != terms.instance:
        return Reason.WRONG_INSTANCE, f"signed for {statement.instance}, this is {terms.instance}", ""
    if statement.not_before >= statement.expires_at:
        return Reason.WINDOW_EMPTY, "not_before is not before expires_at", ""
    if now >= statement.expires_at:
        return Reason.EXPIRED, "the window has closed, by the broker's clock", "sign it anew: lever directive send"
    if statement.expires_at - now > terms.expiry_max_s * SECOND:
        return Reason.EXPIRY_BEYOND_CAP, f"expires more than {terms.expiry_max_s} s from now", "--expires"
    if statement.issued_at > now + LEEWAY_S * SECOND:
        return (
            Reason.ISSUED_IN_FUTURE,
            "issued_at is ahead of the broker's clock",
            "compare the clocks: lever doctor",
        )
    return None


def _target_flaw(book: Book, statement: Statement, terms: Terms) -> Flaw | None:
    if statement.issued_at <= book.restored_at:
        return (
            Reason.JOURNAL_RESTORED,
            "signed before this state folder was restored, or within two minutes of it",
            "wait two minutes, then sign it anew",
        )
    cn, generation = statement.target.cn, statement.target.generation
    agent = book.agents.get(cn)
    if agent is None:
        return Reason.UNKNOWN_AGENT, f"no agent {cn} is enrolled", f"lever agent invite {cn}"
    if agent.state is not Enrolment.ENROLLED:
        reason = Reason.AGENT_REVOKED if agent.state is Enrolment.REVOKED else Reason.AGENT_FROZEN
        return reason, f"agent {cn} is {agent.state}", f"lever agent invite {cn}"
    if agent.generation != generation:
        return (
            Reason.GENERATION_STALE,
            f"signed for generation {generation}, {cn} is at {agent.generation}",
            f"sign it anew: lever directive send {cn}",
        )
    id = statement.directive_id
    if id in book.directives or id in book.tombstones or id in book.ledger.acts or id in book.ledger.lease_ids:
        return Reason.ID_SEEN, "this directive id was used before", "sign it anew with another id"
    if len(book.by_agent.get(cn, ())) >= terms.max_active_per_agent:
        return Reason.TOO_MANY_ACTIVE, f"{cn} has {terms.max_active_per_agent} active", "lever directive list"
    return None
