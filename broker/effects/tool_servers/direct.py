"""Tool calls as lines of our own over a process's pipes: the SDK's streams and tasks cost more than all else of a call.

The shapes are the SDK's; so is everything that is no call of a tool.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any, Final

from mcp.types import ErrorData, JSONRPCError, JSONRPCResponse
from mcp_types.methods import validate_server_result

from broker.effects.tool_servers.outcome import Unknown

FIRST_ID: Final = 2**31
"""Far from the numbers that the SDK gives its own requests: it counts from nought."""
_LATER = frozenset(("resultType", "requestState", "inputRequests"))
"""What only a later revision of the protocol has in a result: here it means nothing."""


class Direct:
    """The calls in hand of one process. write: takes a line; asked: a request is in hand; settled: it is no longer,
    False where it was not."""

    def __init__(
        self, write: Callable[[bytes], None], asked: Callable[[int], None], settled: Callable[[int], bool]
    ) -> None:
        self._write, self._asked, self._settled = write, asked, settled
        self._ids = itertools.count(FIRST_ID)
        self._waiting: dict[int, asyncio.Future[dict[str, Any] | ErrorData]] = {}
        self._ended = ""

    async def call(self, tool: str, arguments: bytes, version: str) -> dict[str, Any] | ErrorData:
        """Send it once. version: of the protocol, one that has a handshake. Raises Unknown, ValidationError.

        arguments: frozen, and sent as they are. The server is told when nobody waits for its answer any more.
        """
        if self._ended:
            raise Unknown(self._ended)
        id = next(self._ids)
        answer = self._waiting[id] = asyncio.get_running_loop().create_future()
        self._asked(id)
        self._write(
            b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%b,"arguments":%b}}\n'
            % (id, json.dumps(tool).encode(), arguments)
        )
        try:
            found = await answer
        except asyncio.CancelledError:
            if self._settled(id):  # not where the answer came in this very moment
                self._write(
                    b'{"jsonrpc":"2.0","method":"notifications/cancelled",'
                    b'"params":{"requestId":%d,"reason":"nobody waits for the answer"}}\n' % id
                )
            raise
        finally:
            del self._waiting[id]
        if isinstance(found, ErrorData):
            return found
        validate_server_result("tools/call", version, found)
        return {name: value for name, value in found.items() if name not in _LATER}

    def take(self, message: Any) -> bool:
        """Is it an answer to one of these calls, be it one that nobody waits for? Raises ValueError for one that is
        no message of the protocol."""
        if not isinstance(message, dict) or isinstance(message.get("method"), str):
            return False
        id = number(message.get("id"))
        if id is None or id < FIRST_ID:
            return False
        answer = self._waiting.get(id)
        found: dict[str, Any] | ErrorData
        if "error" in message and "result" in message:
            raise ValueError("both a result and an error")
        if "error" in message:
            found = JSONRPCError.model_validate(message, by_name=False).error
        else:
            found = JSONRPCResponse.model_validate(message, by_name=False).result
        if self._settled(id) and answer is not None and not answer.done():
            answer.set_result(found)
        return True

    def end(self, why: str) -> None:
        """Nothing more will come: what is in hand has no known end."""
        self._ended = self._ended or why
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Unknown(why))


def number(id: Any) -> int | None:
    """The number of a request that we sent, as the SDK takes it: in digits, too. None for what is none of ours."""
    if isinstance(id, str) and id.isascii() and id.isdecimal() and len(id) < 20:
        return int(id)
    return id if type(id) is int else None
