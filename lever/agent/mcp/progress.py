"""Signs of life while a call is under way, for a client that asked for them with a `progressToken`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Protocol, TypeVar

import anyio

from broker.errors import Malformed
from broker.wire.progress import MESSAGE
from lever.agent.failures import AgentFailure

T = TypeVar("T")


class Session(Protocol):
    """The client's session. To one that asked for no progress it says nothing."""

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the request is that this session is answering."""


async def meanwhile(session: Session, every_s: float, work: Callable[[], Awaitable[T]]) -> T:
    """What the work gives; every so many seconds until then the client hears how long it has taken. That extends
    nothing: no wait, no lease, no deadline. Raises what the work raises, of the failures that have words."""
    failure: Malformed | AgentFailure | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_tell, session, every_s)
        try:
            return await work()
        except (Malformed, AgentFailure) as error:  # raised inside it would come out of the group wrapped
            failure = error
        finally:
            group.cancel_scope.cancel()
    assert failure
    raise failure


async def _tell(session: Session, every_s: float) -> None:
    """In seconds, and of no known total: when the operator answers, and how long a tool takes, nobody knows."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # who left stops no call
        for times in count(1):
            await anyio.sleep(every_s)
            await session.report_progress(times * every_s, message=MESSAGE)
