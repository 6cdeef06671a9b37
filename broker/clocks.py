"""The machine's clocks, in microseconds."""

from __future__ import annotations

import time

from broker.wire.names import Instant


def clock() -> Instant:
    """The wall clock."""
    return Instant(time.time_ns() // 1000)


def steady() -> Instant:
    """A clock that nobody sets, from an arbitrary beginning."""
    return Instant(time.monotonic_ns() // 1000)
