"""Wall time and timers, in one hand so that whatever waits for a time can be tested without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.wire.names import Instant
from broker.wire.times import SECOND


class Timer(Protocol):
    """A call that has not happened yet."""

    def cancel(self) -> None:
        """Make it not happen. Harmless afterwards."""


class Scheduler(Protocol):
    """The time, and calls at a time."""

    def now(self) -> Instant:
        """The wall clock."""

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Timer:
        """Call once, not before this returns. What lies in the past is called as soon as may be.

        The call may come a little early or, when the clock is set, late: who needs the time looks at `now`.
        """


class LoopScheduler:
    """The real one, on the running event loop. clock: the wall clock."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock = clock

    def now(self) -> Instant:
        """The wall clock."""
        return self._clock()

    def call_at(self, at: Instant, callback: Callable[[], None]) -> Timer:
        """Call once on the running loop."""
        loop = asyncio.get_running_loop()
        return loop.call_at(loop.time() + max(0, at - self._clock()) / SECOND, callback)
