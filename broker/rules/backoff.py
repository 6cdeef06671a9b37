"""When to try again: twice as late each time, up to a bound, and spread so that failures do not march in step."""

from __future__ import annotations

from broker.wire.names import Instant
from broker.wire.times import SECOND

FIRST_S = 2
LONGEST_S = 300


def next_at(now: Instant, attempt: int, chance: float) -> Instant:
    """The time of the next try after `attempt` tries (1 or more) have failed. chance: random, from 0 up to 1.

    The pause is between half and the whole of 2, 4, 8 ... 300 seconds.
    """
    whole_s = LONGEST_S if attempt > LONGEST_S.bit_length() else min(LONGEST_S, FIRST_S << (attempt - 1))
    return Instant(now + int(whole_s * SECOND * (1 + chance) / 2))
