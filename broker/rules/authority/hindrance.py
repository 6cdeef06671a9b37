"""What would now refuse the very thing that a request waits for: nobody is to sign what could not be used."""

from __future__ import annotations

from broker.errors import Malformed, Reason
from broker.rules.authority import budgets, leases
from broker.rules.authority.entries import Request
from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Call, Deny
from broker.rules.authority.passage import resources_of
from broker.rules.authority.resolving import resolved
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.wire import frozen
from broker.wire.names import Cn, Generation, Instant

Hindrance = tuple[Reason, str]


def of(book: Book, now: Instant, waiting: Request) -> Hindrance | None:
    """Decided anew, on the newest state, from the arguments that wait; None where only the signature is missing."""
    if found := of_agent(book, now, waiting.cn, waiting.generation):
        return found
    return _of_call(book, waiting) if waiting.tool else leases.flaw_of(book, waiting.cn, waiting.account)


def of_agent(book: Book, now: Instant, cn: Cn, generation: Generation) -> Hindrance | None:
    """What would refuse whatever this enrolment calls."""
    ledger = book.ledger
    if cn in book.paused:
        return Reason.AGENT_PAUSED, f"{cn} is paused"
    if ledger.stopped_at:
        return Reason.EMERGENCY_STOP, "everything is stopped"
    run = ledger.runs.get(ledger.run_of.get((cn, generation), ""))
    if run and run.stopped:
        return Reason.RUN_STOPPED, f"its run is over ({run.stopped})"
    over = budgets.exceeded(run, ledger.layers(scopes_of(book, cn)), now)
    # Figures that are late come with the agent's next words: that it waits for the operator does not end its request.
    return over if over and over[0] is Reason.BUDGET_EXCEEDED else None


def _of_call(book: Book, waiting: Request) -> Hindrance | None:
    server, _, name = waiting.tool.partition(".")
    tool = resolved(book.ledger, server, name)
    try:
        call = Call(waiting.cn, waiting.tool, frozen.thaw(waiting.args).value)
    except Malformed as error:
        return Reason.INVALID_ARGUMENTS, str(error)
    judgement = judge(tool, book.ledger.layers(scopes_of(book, waiting.cn)), call)
    if isinstance(judgement.decision, Deny):
        return Reason(judgement.decision.code), judgement.decision.reason
    account = judgement.account or ""
    if waiting.regime == "lease" and (judgement.regime, account) != ("lease", waiting.account):
        return Reason.APPROVAL_DIFFERS, "by the policy of now it is no read under this lease"
    if waiting.regime == "act" and (account, resources_of(judgement)) != (waiting.account, waiting.resources):
        return Reason.APPROVAL_DIFFERS, "by the policy of now this call touches something else"
    return None
