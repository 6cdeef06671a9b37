"""What an agent may do about a lease itself: ask for one, and give it back."""

from __future__ import annotations

from collections.abc import Iterator

from broker.errors import Reason
from broker.rules import identity
from broker.rules.authority import asking, budgets
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.caller_steps import started_run
from broker.rules.authority.entries import Request
from broker.rules.authority.passage import Ids
from broker.rules.authority.plan import accounts, plan
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.decision import Request as Asked
from broker.wire import strict_json
from broker.wire.act_records import RequestOpened, RunStarted
from broker.wire.caller import Caller
from broker.wire.frozen import freeze
from broker.wire.names import Cn, Digest, Instant
from broker.wire.policy_terms import Account, Tier, ToolClass
from broker.wire.records import Draft
from broker.wire.strict_json import JsonObject

_NO_TOOL = Digest(bytes(32))


def terms_of(book: Book, cn: Cn, account: str) -> Account | None:
    """What the policy says of reading this account, the least of all layers; None where the instance's knows none."""
    return accounts(book.ledger.layers(scopes_of(book, cn))).get(account)


def flaw_of(book: Book, cn: Cn, account: str) -> tuple[Reason, str] | None:
    """Why no lease of this account would let this agent read anything."""
    terms = terms_of(book, cn, account)
    if terms is None:
        return Reason.UNKNOWN_ACCOUNT, "there is no account of that name"
    if terms.sensitive:
        return Reason.DENIED_BY_RULE, "this account has no lease: each read is asked for by its own call"
    if not any(_reads(book, cn, account)):
        return Reason.DENIED_BY_DEFAULT, "no tool that may be called reads this account under a lease"
    return None


def _reads(book: Book, cn: Cn, account: str) -> Iterator[bool]:
    """Of each accepted tool: may it read this account, unless its arguments or its server say otherwise?"""
    layers = book.ledger.layers(scopes_of(book, cn))
    for planned in (plan(layers, tool) for tool in book.ledger.tools()):
        leased = planned.place.tier is Tier.ALLOWED and planned.tool_class is ToolClass.READ
        named = planned.account == account or not isinstance(planned.account, str | None)
        yield leased and named and not planned.account_problem


def seconds_of(request: Request) -> int | None:
    """How short a lease the agent asked for; None where it said nothing of it. A read's own arguments say nothing."""
    if request.regime != "lease" or request.tool or not request.args:
        return None
    said = strict_json.parse(request.args, "arguments")
    found = said.get("seconds") if isinstance(said, dict) else None
    return found if isinstance(found, int) else None


def ask(
    book: Book, now: Instant, *, caller: Caller, account: str, ids: Ids, seconds: int | None = None
) -> Decision[ConsentRequired]:
    """Ask the operator for a lease, before any read needs it. seconds: it may be shorter than the policy's."""
    terms = terms_of(book, caller.cn, account)
    asked = Asked("agent", caller.cn, "lease_request", account if terms else "")  # else it may be anything
    if bar := identity.barred(book, caller, now) or identity.stale(book, caller):
        return asked.refuse(bar)
    ledger = book.ledger
    if ledger.stopped_at:
        return asked.refuse(Reason.EMERGENCY_STOP, "the operator has stopped everything for now")
    run = started_run(book, caller)
    if run and run.stopped:
        return asked.refuse(Reason.RUN_STOPPED, f"the run is over ({run.stopped})")
    if over := budgets.exceeded(run, ledger.layers(scopes_of(book, caller.cn)), now):
        return asked.refuse(*over)
    if flaw := flaw_of(book, caller.cn, account):
        return asked.refuse(*flaw)
    said: JsonObject = {"seconds": min(seconds, terms.lease_seconds)} if seconds and terms else {}
    frozen = freeze(said)
    wanted = RequestOpened(
        ids.request, caller.cn, caller.generation, run.run if run else ids.run, "lease", "", account, (),
        frozen.digest, _NO_TOOL, (), "the agent asks for it beforehand: no call waits for it", asking.until(now),
    )  # fmt: skip
    started = () if run else (Draft(RunStarted(ids.run, caller.cn, caller.generation, "call")),)
    return asking.ask(book, now, asked=asked, wanted=wanted, args=frozen.raw, started=started)
