"""The transition table, whole: every state with every event."""

from __future__ import annotations

import itertools

import pytest

from broker.errors import Refused
from broker.rules.lifecycle import ENDED, Event, State, after

FINAL = {Event.CONSUME: "consumed", Event.REVOKE: "revoked", Event.INVALIDATE: "invalidated", Event.EXPIRE: "expired"}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_only_an_active_directive_moves_and_then_for_good(state: State, event: Event) -> None:
    if state is State.ACTIVE:
        assert after(state, event) == FINAL[event]
        return
    with pytest.raises(Refused) as refused:
        after(state, event)
    assert refused.value.reason is ENDED[state]
