"""A clock and timers that move only when a test moves them. tests/effects/test_schedule.py holds it to the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker.wire.names import Instant
from broker.wire.times import SECOND


@dataclass(eq=False)
class FakeTimer:
    """A call that has not happened yet. due: microseconds of elapsed time, whatever the wall clock says."""

    due: int
    callback: Callable[[], None]
    timers: list[FakeTimer]

    def cancel(self) -> None:
        if self in self.timers:
            self.timers.remove(self)


class FakeScheduler:
    """Time stands still between calls of `advance`. Like the real one it counts a timer's delay in elapsed time."""

    def __init__(self, now: Instant) -> None:
        self._elapsed = 0
        self._started_at = now
        self.timers: list[FakeTimer] = []

    def now(self) -> Instant:
        return Instant(self._started_at + self._elapsed)

    def call_at(self, at: Instant, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self._elapsed + max(0, at - self.now()), callback, self.timers)
        self.timers.append(timer)
        return timer

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, calling each timer at its time, and let everything settle."""
        until = self._elapsed + int(seconds * SECOND)
        await settle()
        while due := [timer for timer in self.timers if timer.due <= until]:
            timer = min(due, key=lambda timer: timer.due)
            self._elapsed = timer.due
            self.timers.remove(timer)
            timer.callback()
            await settle()
        self._elapsed = until
        await settle()

    def set_clock(self, seconds: float) -> None:
        """Move the wall clock alone, as its operator does, or a machine's sleep."""
        self._started_at = Instant(self._started_at + int(seconds * SECOND))


async def settle() -> None:
    """Let all that can run without the world run."""
    for _ in range(400):
        await asyncio.sleep(0)
