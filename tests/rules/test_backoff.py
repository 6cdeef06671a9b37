"""The pauses between tries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rules.backoff import next_at
from broker.wire.names import Instant
from broker.wire.times import SECOND

JUST_BELOW_ONE = 1 - 2**-53


@pytest.mark.parametrize(
    ("attempt", "longest_s"), [(1, 2), (2, 4), (3, 8), (7, 128), (8, 256), (9, 300), (10, 300), (10**9, 300)]
)
def test_the_pause_doubles_up_to_five_minutes(attempt: int, longest_s: int) -> None:
    assert next_at(Instant(0), attempt, 0.0) == longest_s * SECOND // 2
    assert longest_s * SECOND - 1 <= next_at(Instant(0), attempt, JUST_BELOW_ONE) <= longest_s * SECOND


@given(st.integers(1, 500), st.floats(0, JUST_BELOW_ONE), st.integers(0, 2**52))
def test_the_next_try_is_always_later_and_never_far_away(attempt: int, chance: float, now: int) -> None:
    assert now + SECOND <= next_at(Instant(now), attempt, chance) <= now + 300 * SECOND
