"""How often something may happen: a token bucket in whole microseconds, without a window and so without its edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from broker.wire.names import Instant
from broker.wire.times import SECOND

Bucket = NewType("Bucket", int)
"""A bucket's level, as the Instant at which it will be full again: one number, nothing to refill by a timer."""


def full(bucket: Bucket, now: Instant) -> bool:
    """Is it as good as one that was never used, and so may be forgotten?"""
    return bucket <= now


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Holds `capacity` tokens, gains `refill_per_s` (more than 0) a second, and gives one to each thing allowed.

    In any span of t seconds at most capacity + t * refill_per_s things are allowed, wherever the span begins.
    """

    capacity: int
    refill_per_s: float

    def take(self, bucket: Bucket | None, now: Instant, tokens: int = 1) -> tuple[Bucket, bool]:
        """The bucket afterwards, and whether there were so many. None is a full bucket; a refusal costs nothing."""
        level = self._level(bucket, now)
        if self.ready_at(bucket, now, tokens) > now:
            return Bucket(level), False
        return Bucket(level + tokens * self._interval), True

    def ready_at(self, bucket: Bucket | None, now: Instant, tokens: int = 1) -> Instant:
        """From when on there are so many tokens: now, or later; of more than it holds there never are."""
        return Instant(max(now, self._level(bucket, now) - (self.capacity - tokens) * self._interval))

    def _level(self, bucket: Bucket | None, now: Instant) -> int:
        """Full is now or earlier; emptier than empty is a clock that was set back."""
        return now if bucket is None else min(max(bucket, now), now + self.capacity * self._interval)

    @property
    def _interval(self) -> int:
        """Microseconds a token takes to come, rounded up: never a token too many."""
        tokens, seconds = self.refill_per_s.as_integer_ratio()
        return -(-SECOND * seconds // tokens)
