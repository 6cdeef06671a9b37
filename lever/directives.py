"""How directives and what happens to them are told to people. The values come from the broker, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.errors import Malformed
from broker.wire import times
from broker.wire.names import Instant
from broker.wire.times import SECOND

Row = Mapping[str, Any]
HEADERS = ("ID", "STATE", "TOLD", "AGENT", "SAYS")
_TOLD = {
    "delivered": "yes",
    "queued": "not yet",
    "failed": "failed",
    "dead_letter": "never",
    "fetched": "found it",
}
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
ENDED = frozenset(("consumed", "revoked", "invalidated", "expired"))
_END_OF_KIND = {
    "directive_consumed": "consumed",
    "directive_revoked": "revoked",
    "directive_invalidated": "invalidated",
    "directives_expired": "expired",
}


def row(directive: Row, now: Instant) -> tuple[str, ...]:
    """The cells of one directive under HEADERS."""
    return (
        _text(directive, "id"),
        _state(directive, now),
        _TOLD.get(_text(directive, "pointer", "state"), "-"),
        agent(directive),
        says(directive),
    )


def facts(directive: Row, now: Instant) -> dict[str, str]:
    """All that the broker tells of one directive."""
    return {
        "id": _text(directive, "id"),
        "state": _state(directive, now),
        "because": _text(directive, "reason"),
        "agent": agent(directive),
        "says": says(directive),
        "enforced": enforced(directive),
        "issued": _text(directive, "issued_at"),
        "from": _text(directive, "not_before"),
        "until": _text(directive, "expires_at"),
        "consumed": _text(directive, "consumed_at"),
        "ended": _text(directive, "ended_at"),
        "reported": _report(directive),
        "told": _pointer(directive),
        "key": _text(directive, "fingerprint"),
    }


def agent(directive: Row) -> str:
    """`worker-a/3`: the agent and its generation."""
    return f"{_text(directive, 'target', 'cn')}/{_text(directive, 'target', 'generation')}"


def says(directive: Row) -> str:
    """The kind, and for a bound action the operation of a tool."""
    return " ".join(_text(directive, name) for name in ("kind", "tool", "op") if directive.get(name))


def enforced(directive: Row) -> str:
    """What a broker that does not stand between the agent and its tools says of a bound action."""
    return "no: the agent makes the call itself" if directive.get("enforced") is False else ""


def end_of(event: Row) -> str | None:
    """The state in which a directive ended with this event; None while it goes on."""
    if event.get("kind") == "state":
        state = _text(event, "state")
        return state if state in ENDED else None
    return _END_OF_KIND.get(_text(event, "kind"))


def told(event: Row) -> str:
    """One event in words."""
    kind = _text(event, "kind")
    match kind:
        case "state":
            state = _text(event, "state")
            words = f"{state} until {_text(event, 'expires_at')}" if state not in ENDED else state
        case "pointer_delivered":
            words = f"told by {_text(event, 'channel')}"
        case "pointer_failed":
            words = f"not told by {_text(event, 'channel')}: {_text(event, 'why')}; next try {_text(event, 'next_at')}"
        case "directive_consumed":
            words = f"consumed by {_text(event, 'cn')}, generation {_text(event, 'generation')}"
        case "directive_reported":
            words = f"reported {_text(event, 'outcome')}, in the agent's own unverified word"
        case "directive_invalidated":
            words = f"invalidated: {_text(event, 'reason')}"
        case _:
            words = _END_OF_KIND.get(kind, kind)
    return f"{_text(event, 'at')}  {words}" if event.get("at") else words


def span(left_us: int) -> str:
    """A stretch of time in its largest whole unit: `8m`."""
    left_s = max(left_us, 0) // SECOND
    return next((f"{left_s // size}{unit}" for size, unit in _UNITS if left_s >= size), "0s")


def _state(directive: Row, now: Instant) -> str:
    state = _text(directive, "state")
    if outcome := _text(directive, "report", "outcome"):
        return f"{state}, {outcome}"
    border = {"active": "expires_at", "scheduled": "not_before"}.get(state)
    try:
        return f"{state} {span(times.parse(directive.get(border), border) - now)}" if border else state
    except Malformed:
        return state


def _report(directive: Row) -> str:
    """An agent's own word, marked as such."""
    outcome, note, at = (_text(directive, "report", name) for name in ("outcome", "note", "at"))
    return f"{outcome}, says the agent at {at}{f': {note}' if note else ''}" if outcome else ""


def _pointer(directive: Row) -> str:
    words = _TOLD.get(_text(directive, "pointer", "state"), "")
    if attempts := _text(directive, "pointer", "attempts"):
        words += f", attempts: {attempts}"
    for name in ("delivered_at", "last_error"):
        if value := _text(directive, "pointer", name):
            words += f", {value}"
    return words


def _text(value: Any, *path: str) -> str:
    """What stands there, as text; empty for nothing, whatever a broker of another version may have sent."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
