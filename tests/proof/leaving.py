"""A caller that leaves while it waits: at any await that one may choose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, cast

from broker.doors.http import Response


class Leaving:
    """Runs a call like `await`, and has its task cancelled while it waits for the `at`-th time."""

    def __init__(self, call: Coroutine[Any, Any, Response], at: int) -> None:
        self._call, self._at = call, at
        self.waited = 0

    def __await__(self) -> Generator[Any, Any, Response]:
        steps = self._call.__await__()
        go_on: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                waits_for = go_on()
            except StopIteration as done:
                return cast(Response, done.value)
            self.waited += 1
            task = asyncio.current_task()
            if self.waited == self._at and task:
                task.cancel()
            try:
                yield waits_for
                go_on = partial(next, steps)
            except BaseException as error:
                go_on = partial(steps.throw, error)

    async def end(self) -> Response | None:
        """The answer; None where its caller left."""
        task = asyncio.create_task(_awaited(self))
        await asyncio.wait({task})
        return None if task.cancelled() else task.result()


async def _awaited(call: Leaving) -> Response:
    return await call
