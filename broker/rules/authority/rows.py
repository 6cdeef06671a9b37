"""What the operator is shown of requests, leases, runs and tools: read off the ledger; times as RFC 3339."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from broker.rules.authority import budgets, spans
from broker.rules.authority import leases as leasing
from broker.rules.authority.entries import Act, ActState, Lease, Request, RequestState, Run
from broker.rules.authority.judgement import Unresolved
from broker.rules.authority.resolving import as_defined
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.wire import policy
from broker.wire.catalogue import Listing, PinnedTool
from broker.wire.names import Cn, Instant
from broker.wire.times import show

Row = dict[str, Any]


def requests(book: Book, now: Instant, everything: bool = True) -> list[Row]:
    """Every request that is still remembered, the oldest first; or those alone that wait."""
    found = book.ledger.requests.values()
    rows = (one for one in found if everything or state_of(book, one, now) == RequestState.PENDING)
    return [request(book, one, now) for one in rows]


def request(book: Book, one: Request, now: Instant) -> Row:
    """One request, without the arguments themselves."""
    return {
        "request": one.request,
        "state": state_of(book, one, now),
        "regime": one.regime,
        "agent": {"cn": one.cn, "generation": one.generation},
        "run": one.run,
        "tool": one.tool,
        "account": one.account or None,
        "resources": list(one.resources),
        "args_digest": one.args_digest.hex(),
        "tool_digest": one.tool_digest.hex(),
        "policies": list(one.policies),
        "reason": one.reason,
        "opened_at": show(one.opened_at),
        "expires_at": show(one.expires_at),
        "answer": one.answer or None,
        "told_at": show(one.pointer.delivered_at) if one.pointer.delivered_at else None,
        "note": one.note or None,
    }


def state_of(book: Book, one: Request, now: Instant) -> str:
    """Its state, and once the act that answered it is no longer just waiting, what came of that; `expired` from its
    time on, though the record of that comes later."""
    if act := book.ledger.acts.get(one.answer):
        state = _act_state(book, act, now)
        return str(one.state) if state == ActState.ACTIVE else state
    return "expired" if one.state == RequestState.PENDING and now >= one.expires_at else str(one.state)


def asked(book: Book, one: Request, now: Instant) -> Row:
    """One request with what its answer takes: of a lease what the policy of this moment lets it be, null where none
    knows the account. Without the arguments themselves."""
    terms = leasing.terms_of(book, one.cn, one.account) if one.regime == "lease" else None
    row = request(book, one, now)
    return row | ({"terms": asdict(terms) if terms else None} if one.regime == "lease" else {})


def acts(book: Book, now: Instant) -> list[Row]:
    """Every act that is still remembered."""
    return [_act(book, one, now) for one in book.ledger.acts.values()]


def _act_state(book: Book, one: Act, now: Instant) -> str:
    """Its own; once its call has ended, what that came to; `expired` from its time on, as of a request."""
    claim = book.ledger.claims.get(one.claim)
    late = one.state is ActState.ACTIVE and now >= one.expires_at
    return (claim.outcome if claim else "") or ("expired" if late else str(one.state))


def _act(book: Book, one: Act, now: Instant) -> Row:
    return {
        "act": one.act,
        "state": _act_state(book, one, now),
        "request": one.request or None,
        "agent": {"cn": one.cn, "generation": one.generation},
        "tool": one.tool,
        "account": one.account or None,
        "resources": list(one.resources),
        "expires_at": show(one.expires_at),
        "claim": one.claim or None,
        "fingerprint": one.signed.fingerprint,
    }


def leases(book: Book, now: Instant) -> list[Row]:
    """Every lease that is open."""
    return [_lease(one, now) for one in book.ledger.leases.values()]


def _lease(one: Lease, now: Instant) -> Row:
    return {
        "lease": one.lease,
        "agent": {"cn": one.cn, "generation": one.generation},
        "account": one.account,
        "run": one.run,
        "seconds": one.seconds,
        "operations": one.operations,
        "used": one.used,
        "first_read_at": show(one.started_at) if one.started_at else None,
        "closes_at": show(spans.ends_at(one)),
        "fingerprint": one.signed.fingerprint,
    }


def ended_leases(book: Book) -> list[Row]:
    """What each lease that is closed came to, as long as it is remembered."""
    return [
        {
            "lease": one.lease,
            "agent": {"cn": one.cn, "generation": one.generation},
            "account": one.account,
            "seconds": one.seconds,
            "operations": one.operations,
            "used": one.used,
            "used_s": one.used_s,
            "reason": one.reason,
            "opened_at": show(one.opened_at),
            "closed_at": show(one.ended_at),
            "fingerprint": one.fingerprint,
        }
        for one in book.ledger.ended_leases.values()
    ]


def runs(book: Book, now: Instant) -> list[Row]:
    """Every run that is still remembered, with what it used and what it may use."""
    return [_run(book, one, now) for one in book.ledger.runs.values()]


def _run(book: Book, one: Run, now: Instant) -> Row:
    allowed = budgets.limits(book.ledger.layers(scopes_of(book, Cn(one.cn))))
    return {
        "run": one.run,
        "agent": {"cn": one.cn, "generation": one.generation},
        "state": f"stopped: {one.stopped}" if one.stopped else "going on",
        "started_at": show(one.started_at),
        "used": budgets.used(one, now),
        "limits": {name.removeprefix("max_"): getattr(allowed, name) for name in allowed.__dataclass_fields__},
        "usage_at": show(one.usage_at) if one.usage_at else None,
    }


def policies(book: Book) -> Row:
    """Every policy that is in force, in its canonical bytes, and the names of the tools that are accepted."""
    in_force = [(scope, force.policy) for scope, force in book.ledger.policies.items() if force.policy]
    told = [
        {"scope": scope, "version": one.version, "digest": one.digest.hex(), "policy": policy.encode(one).decode()}
        for scope, one in in_force
    ]
    return {"policies": told, "accepted": sorted(tool.qualified for tool in book.ledger.tools())}


def tools(book: Book, server: str, seen: Listing | None) -> list[Row]:
    """A server's tools as it defines them now, beside what was accepted. seen: None while it does not answer."""
    before = {tool.name: tool for tool in book.ledger.tools() if tool.server == server}
    if seen is None:
        rows = [_tool(tool, None, False) | {"state": "unavailable"} for tool in before.values()]
        return [_with_refusal(book, row, Unresolved.SERVER_UNAVAILABLE) for row in rows]
    names = sorted({*seen.tools, *before} - seen.unfit.keys())
    rows = [_tool(before.get(name), seen.tools.get(name), (server, name) in book.ledger.changed) for name in names]
    rows += [_unfit(before.get(name), f"{server}.{name}", why) for name, why in seen.unfit.items()]
    defined = {tool.qualified: tool for tool in seen.tools.values()}
    return [_with_refusal(book, row, defined.get(row["tool"], Unresolved.TOOL_CHANGED)) for row in rows]


def _with_refusal(book: Book, row: Row, defined: PinnedTool | Unresolved) -> Row:
    """With the code that every call of it gets, whoever calls; null where it depends on the call."""
    tool = as_defined(book.ledger, row["tool"], defined)
    return row | {"refused": str(tool) if isinstance(tool, Unresolved) else None}


def _tool(accepted: PinnedTool | None, seen: PinnedTool | None, shut: bool) -> Row:
    """shut: it was seen to be another since, and stays so until it is accepted anew, also where it changed back."""
    known = seen or accepted
    assert known
    if accepted is None:
        state = "quarantined"
    elif seen is None:
        state = "gone"
    else:
        state = "changed" if shut or seen.digest != accepted.digest else "accepted"
    return {
        "tool": known.qualified,
        "state": state,
        "why": None,
        "digest": seen.digest.hex() if seen else None,
        "identity": seen.identity.value if seen else None,
        "definition": seen.definition if seen else None,
        **_accepted(accepted),
    }


def _unfit(accepted: PinnedTool | None, tool: str, why: str) -> Row:
    """Its definition can be neither accepted nor shown: all that is told of it is why."""
    row = {"tool": tool, "state": "unacceptable", "why": why, "digest": None, "identity": None, "definition": None}
    return row | _accepted(accepted)


def _accepted(tool: PinnedTool | None) -> Row:
    return {
        "accepted_digest": tool.digest.hex() if tool else None,
        "accepted_identity": tool.identity.value if tool else None,
        "accepted_definition": tool.definition if tool else None,
    }
