"""What the operator is shown of directives and agents: read off the book, without any statement bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.rules.authority import caller_steps
from broker.rules.book import Book
from broker.rules.entries import Directive, Enrolment, Report, Tombstone
from broker.rules.lifecycle import State
from broker.wire.names import Cn, DirectiveId, Instant
from broker.wire.times import show

Row = dict[str, Any]


def directives(book: Book, now: Instant, *, id: str = "", state: str = "") -> list[Row]:
    """Finished directives, then the live ones; times as RFC 3339; null for what has not happened."""
    return [row for row in _all(book, now, id) if not state or row["state"] == state]


def agents(book: Book, now: Instant, *, cn: str = "") -> list[Row]:
    """Enrolled agents and open invitations, by name; of the one that is asked for, also what is pending, and
    whether its calls get as far as the judgement."""
    invited = {t.cn: t.expires_at for t in book.tickets.values() if not t.answer and now < t.expires_at}
    names = sorted({*book.agents, *invited})
    rows = [_agent(book, name, invited.get(name)) for name in names if not cn or name == cn]
    return [row | _more(book, Cn(cn), now) for row in rows] if cn else rows


def _more(book: Book, cn: Cn, now: Instant) -> Row:
    steps, refused = caller_steps.told(book, now, cn)
    return {
        "pending": [_live(d, now) for d in book.of_agent(cn)],
        "calls": {
            "steps": [step._asdict() for step in steps],
            "refused": {"code": refused[0], "reason": refused[1]} if refused else None,
        },
    }


def _all(book: Book, now: Instant, id: str) -> Iterator[Row]:
    if id:
        key = DirectiveId(id)
        if tombstone := book.tombstones.get(key):
            yield _ended(key, tombstone, book.reports.get(key))
        if directive := book.directives.get(key):
            yield _live(directive, now)
        return
    yield from (_ended(key, tombstone, book.reports.get(key)) for key, tombstone in book.tombstones.items())
    yield from (_live(directive, now) for directive in book.directives.values())


def _live(d: Directive, now: Instant) -> Row:
    state = "expired" if now >= d.expires_at else "scheduled" if now < d.not_before_at else "active"
    pointer = d.pointer
    told = "delivered" if pointer.delivered_at else "failed" if pointer.attempts else "queued"
    return _row(d.id, d, state, d.issued_at, d.expires_at) | {
        "not_before": show(d.not_before_at),
        "pointer": _pointer(told, pointer.attempts, pointer.delivered_at) | {"last_error": pointer.last_error},
    }


def _ended(id: DirectiveId, t: Tombstone, report: Report | None) -> Row:
    issued_at, expires_at, ended_at, delivered_at = t.times
    unheard = "dead_letter" if t.attempts else "none"
    told = "delivered" if delivered_at else unheard if t.state is not State.CONSUMED else "fetched"
    return _row(id, t, str(t.state), issued_at, expires_at) | {
        "ended_at": show(ended_at),
        "consumed_at": show(ended_at) if t.state == "consumed" else None,
        "reason": str(t.reason) or None,
        "report": {"outcome": report.outcome, "note": report.note, "at": show(report.at)} if report else None,
        "pointer": _pointer(told, t.attempts, delivered_at),
    }


def _row(id: DirectiveId, d: Directive | Tombstone, state: str, issued_at: Instant, expires_at: Instant) -> Row:
    is_held = d.enforced if isinstance(d, Tombstone) else d.frozen is not None
    bound = {"tool": d.tool, "op": d.op, "enforced": is_held} if d.tool else {}
    return {
        "id": id,
        "state": state,
        "kind": d.kind,
        **bound,
        "target": {"cn": d.cn, "generation": d.generation},
        "issued_at": show(issued_at),
        "expires_at": show(expires_at),
        "fingerprint": d.fingerprint,
    }


def _pointer(state: str, attempts: int, delivered_at: Instant) -> Row:
    return {"state": state, "attempts": attempts, "delivered_at": show(delivered_at) if delivered_at else None}


def _agent(book: Book, cn: Cn, invite_expires_at: Instant | None) -> Row:
    agent = book.agents.get(cn)
    row: Row = {"cn": cn, "generation": 0, "state": "invited", "certificate": None, "active_directives": 0}
    if agent:
        row |= {
            "generation": agent.generation,
            "state": "paused" if cn in book.paused and agent.state is Enrolment.ENROLLED else str(agent.state),
            "paused": cn in book.paused,
            "certificate": {"not_after": show(agent.not_after_at), "renewals": agent.renewals},
            "active_directives": len(book.by_agent.get(cn, ())),
            "tenant": agent.tenant or None,
            "project": agent.project or None,
        }
    seen_at = book.last_seen.get(cn)
    return row | {
        "last_seen_at": show(seen_at) if seen_at else None,
        "invite_expires_at": show(invite_expires_at) if invite_expires_at else None,
    }
