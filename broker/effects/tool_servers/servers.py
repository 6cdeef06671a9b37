"""What the gateway needs of the tool servers, and what stands there where none is configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.effects.tool_servers.look import Look
from broker.effects.tool_servers.outcome import Holder, NotSent, Outcome
from broker.errors import Unavailable
from broker.wire.catalogue import PinnedTool


class Servers(Protocol):
    """The only way to an upstream tool. Raises NotSent, Unknown, Unavailable, Malformed."""

    async def call(self, holder: Holder, tool: PinnedTool, arguments: bytes, timeout_s: float, /) -> Outcome: ...
    async def look(self, holder: Holder | None, server: str, at: float, since: float, /) -> Look: ...
    def looked(self, holder: Holder | None, server: str, /) -> Look | None: ...
    def retire(self, former: Callable[[Holder], bool], /) -> None: ...
    async def stop(self) -> None: ...


class NoServers:
    """Where none is configured: what reaches one takes a second to load."""

    async def call(self, holder: Holder, tool: PinnedTool, arguments: bytes, timeout_s: float, /) -> Outcome:
        raise NotSent(f"no server {tool.server} is configured")

    async def look(self, holder: Holder | None, server: str, at: float, since: float, /) -> Look:
        raise Unavailable(f"no server {server} is configured")

    def looked(self, holder: Holder | None, server: str, /) -> Look | None:
        return None

    def retire(self, former: Callable[[Holder], bool], /) -> None:
        return

    async def stop(self) -> None:
        return
