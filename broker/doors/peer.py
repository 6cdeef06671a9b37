"""Who is at the other end of one connection, and what its requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Peer:
    """One for each connection. The door fills it in once, before the first request.

    certificate_der: the client certificate that TLS accepted. uid: who connected, on a unix socket.
    connection: for the routes' own use, as long as the connection lasts. ended: the client is gone or the door closes.
    """

    certificate_der: bytes | None = None
    uid: int | None = None
    connection: dict[str, object] = field(default_factory=dict)
    ended: bool = False
    _waiting: asyncio.Task[object] | None = None

    async def wait(self, waited: Awaitable[object]) -> None:
        """Wait for this, but no longer than the client is there and the door is open.

        Only for what may be dropped half-way: a long poll, a stream. A turn that writes is never wrapped in it.
        """
        task = asyncio.current_task()
        assert task is not None
        if self.ended:
            task.cancel()
        else:
            self._waiting = task
        try:
            await waited
            if self.ended:
                await asyncio.sleep(0)  # takes up a cancellation that met nothing to interrupt
        except asyncio.CancelledError:
            if not self.ended or task.uncancel() > 0:
                raise
        finally:
            self._waiting = None

    def end(self) -> None:
        """The client is gone, or the door closes: whoever waits stops waiting; whoever works goes on."""
        if not self.ended:
            self.ended = True
            if self._waiting is not None:
                self._waiting.cancel()
