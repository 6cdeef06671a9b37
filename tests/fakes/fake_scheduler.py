"""A clock and timers that move only when a test moves them. tests/effects/test_schedule.py holds it to the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from broker.wire.names import Instant
from broker.wire.times import SECOND


@dataclass(eq=False)
class FakeTimer:
    """A call that has not happened yet."""

    at: Instant
    callback: Callable[[], None]
    timers: list[FakeTimer]

    def cancel(self) -> None:
        if self in self.timers:
            self.timers.remove(self)


class FakeScheduler:
    """Time stands still between calls of `advance`."""

    def __init__(self, now: Instant) -> None:
        self._now = now
        self.timers: list[FakeTimer] = []

    def now(self) -> Instant:
        return self._now

    def call_at(self, at: Instant, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(at, callback, self.timers)
        self.timers.append(timer)
        return timer

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, calling each timer at its time, and let everything settle."""
        until = Instant(self._now + int(seconds * SECOND))
        await settle()
        while due := [timer for timer in self.timers if timer.at <= until]:
            timer = min(due, key=lambda timer: timer.at)
            self._now = max(self._now, timer.at)
            self.timers.remove(timer)
            timer.callback()
            await settle()
        self._now = until
        await settle()

    def set_clock(self, seconds: float) -> None:
        """Move the wall clock without calling any timer, as a machine's sleep or its operator does."""
        self._now = Instant(self._now + int(seconds * SECOND))


async def settle() -> None:
    """Let all that can run without the world run."""
    for _ in range(400):
        await asyncio.sleep(0)
