"""What a scheduler promises, held against the fake one and the real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from broker.effects.schedule import LoopScheduler, Scheduler
from broker.wire.names import Instant
from broker.wire.times import SECOND
from tests.fakes.fake_scheduler import FakeScheduler


@dataclass
class Stage:
    scheduler: Scheduler
    pass_until: Callable[[asyncio.Event], Awaitable[object]]

    def at(self, seconds: float) -> Instant:
        return Instant(self.scheduler.now() + int(seconds * SECOND))


@pytest.fixture(params=["fake", "real"])
def stage(request: pytest.FixtureRequest) -> Stage:
    if request.param == "real":
        real = LoopScheduler(lambda: Instant(time.time_ns() // 1000))
        return Stage(real, lambda event: asyncio.wait_for(event.wait(), 30))
    fake = FakeScheduler(Instant(10**15))
    return Stage(fake, lambda event: fake.advance(1))


async def test_calls_come_in_the_order_of_their_times_and_once(stage: Stage) -> None:
    calls, last = [], asyncio.Event()
    stage.scheduler.call_at(stage.at(0.03), lambda: (calls.append("second"), last.set()))
    stage.scheduler.call_at(stage.at(0.01), lambda: calls.append("first"))
    await stage.pass_until(last)
    assert calls == ["first", "second"]


async def test_what_lies_in_the_past_is_called_soon_but_never_at_once(stage: Stage) -> None:
    called = asyncio.Event()
    stage.scheduler.call_at(stage.at(-60), called.set)
    assert not called.is_set()
    await stage.pass_until(called)
    assert called.is_set()


async def test_a_cancelled_call_does_not_come_and_cancelling_late_is_harmless(stage: Stage) -> None:
    calls, last = [], asyncio.Event()
    cancelled = stage.scheduler.call_at(stage.at(0.01), lambda: calls.append("cancelled"))
    kept = stage.scheduler.call_at(stage.at(0.02), last.set)
    cancelled.cancel()
    await stage.pass_until(last)
    kept.cancel()
    assert last.is_set()
    assert calls == []


async def test_the_time_of_a_call_is_wall_time() -> None:
    """The real scheduler turns a wall time into a time of the loop: a clock far off the loop's must not matter."""
    called = asyncio.Event()
    scheduler = LoopScheduler(lambda: Instant(42))
    scheduler.call_at(Instant(43), called.set)
    await asyncio.wait_for(called.wait(), 30)
