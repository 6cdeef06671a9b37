"""The life of a directive: every state, every event, and the one table that joins them. Nothing else moves a state."""

from __future__ import annotations

from enum import StrEnum

from broker.errors import Reason, Refused


class State(StrEnum):
    """Where a directive is. All but active are final."""

    ACTIVE = "active"
    CONSUMED = "consumed"
    REVOKED = "revoked"
    INVALIDATED = "invalidated"
    EXPIRED = "expired"


class Event(StrEnum):
    """What can happen to a directive."""

    CONSUME = "consume"
    REVOKE = "revoke"
    INVALIDATE = "invalidate"
    EXPIRE = "expire"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.ACTIVE, Event.CONSUME): State.CONSUMED,
    (State.ACTIVE, Event.REVOKE): State.REVOKED,
    (State.ACTIVE, Event.INVALIDATE): State.INVALIDATED,
    (State.ACTIVE, Event.EXPIRE): State.EXPIRED,
}

ENDED: dict[State, Reason] = {
    State.CONSUMED: Reason.ALREADY_CONSUMED,
    State.REVOKED: Reason.REVOKED,
    State.INVALIDATED: Reason.INVALIDATED,
    State.EXPIRED: Reason.EXPIRED,
}


def after(state: State, event: Event) -> State:
    """The state that follows. Raises Refused with the reason that the present state is."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise Refused(ENDED[state]) from None
