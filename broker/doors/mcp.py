"""POST /mcp on the agent door: Streamable HTTP over mutual TLS, for clients that can show a certificate.

The SDK answers, in JSON and without sessions; this door has judged caller, method, type, size and JSON before. It is
loaded by the first call: it takes a second that no other caller shall wait for. A call that waits becomes a stream of
events where its client asked for progress (mcp_progress.py).
"""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from broker.doors import mcp_progress
from broker.doors.agent import AgentDoor
from broker.doors.http import Request, Response, Route
from broker.doors.tools import ToolRoutes
from broker.errors import Refused
from broker.rules import identity
from broker.wire import bodies, progress
from broker.wire.strict_json import JsonValue

if TYPE_CHECKING:
    from broker.wire.caller import Caller

MAX_BODY_BYTES = bodies.CALL_BODY_MAX_BYTES
CALLER = "lever.caller"
REQUEST = "lever.request"
MESSAGE = "lever.message"


class Manager(Protocol):
    """The SDK's session manager, as far as it is used."""

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None: ...
    def run(self) -> Any: ...


class Mcp(Protocol):
    """The SDK, and the one kind of message that is answered without its transport. Raises Fatal."""

    @property
    def manager(self) -> Manager: ...
    async def called(self, request: Request, caller: Caller, message: JsonValue) -> Response | None: ...


@dataclass(slots=True)
class McpRoute:
    """One route, and the SDK behind it once somebody has called. every_s: how often who asked hears of progress."""

    door: AgentDoor
    tools: ToolRoutes
    version: str
    every_s: float = progress.EVERY_S
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _mcp: Mcp | None = None
    _running: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        """One method, one content type and one size."""
        return [Route("POST", "/mcp", self.door.guarded("mcp", self._handle), "application/json", MAX_BODY_BYTES)]

    async def close(self) -> None:
        """End what the SDK keeps running."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _handle(self, request: Request) -> Response:
        caller = await self.door.caller(request, "mcp")
        if why := identity.stale(self.door.turn.book, caller):
            raise Refused(why)
        await self.door.limit("mcp", caller)
        message = bodies.mcp_body(request.body)
        answer = _answer(self._mcp or await self._load(), request, caller, message)
        asked = mcp_progress.asked(message, request.headers)
        return await (mcp_progress.answered(answer, asked, self.every_s) if asked else answer)

    async def _load(self) -> Mcp:
        async with self._loading:
            if self._mcp is None:
                sdk = await asyncio.to_thread(importlib.import_module, "broker.doors.mcp_server")
                mcp: Mcp = sdk.Mcp(self.door, self.tools, self.version)
                ready = asyncio.Event()
                self._running = asyncio.create_task(_run(mcp.manager, ready))
                await ready.wait()
                self._mcp = mcp
            return self._mcp


async def _run(manager: Manager, ready: asyncio.Event) -> None:
    async with manager.run():
        ready.set()
        await asyncio.Event().wait()


async def _answer(mcp: Mcp, request: Request, caller: Caller, message: JsonValue) -> Response:
    if (response := await mcp.called(request, caller, message)) is not None:
        return response
    return await _bridged(mcp.manager, request, caller, message)


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    """As the SDK is to see them.

    The answer is JSON, whatever the client takes. A stream is named, too, or a call for one is not acceptable to the
    SDK, and never comes as far as being no method of ours.
    """
    told = [(name, value) for name, value in request.headers.items() if name != b"accept"]
    return [*told, (b"accept", b"application/json, text/event-stream")]


async def _bridged(manager: Manager, request: Request, caller: Caller, message: JsonValue) -> Response:
    """One request through the SDK's application, its answer gathered whole. message: its body, strictly read."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "https",
        "path": request.path,
        "raw_path": request.path.encode("ascii"),
        "query_string": b"",
        "root_path": "",
        "headers": _headers(request),
        "client": None,
        "server": None,
        "state": {},
        CALLER: caller,
        REQUEST: request,
        MESSAGE: message,
    }
    taken = asyncio.Event()
    status, kind, pieces = 500, "application/json", list[bytes]()

    async def receive() -> dict[str, Any]:
        if not taken.is_set():
            taken.set()
            return {"type": "http.request", "body": request.body, "more_body": False}
        await asyncio.Event().wait()  # a client that leaves stops nothing: what was decided is carried out
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, kind
        if message["type"] == "http.response.start":
            status = message["status"]
            kind = next(
                (value.decode("latin-1") for name, value in message["headers"] if name == b"content-type"), kind
            )
        else:
            pieces.append(message.get("body", b""))

    await manager.handle_request(scope, receive, send)
    return Response(status, b"".join(pieces), content_type=kind)
