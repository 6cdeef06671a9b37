"""HTTP as both doors read it: the real connection and table of routes, on a socket pair; headers and queries apart."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from uvicorn.server import ServerState

from broker.doors import agent, headers, listen
from broker.doors.connection import Connection
from broker.doors.deadlines import Limits, Waiting
from broker.doors.http import App, Handler, Request, Response, Route
from broker.doors.peer import Peer
from broker.wire import bodies, strict_json
from tests.fuzz.target import Target

_JSON = "application/json"
_ANSWER = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [^\r\n]*\r\n(?:[a-z-]+: [^\r\n]*\r\n)*\r\n(\{[^\r\n]*\}|)")
_HONEST = {100, 200, 400, 403, 404, 405, 413, 415, 417, 421, 429, 431, 505}
_HOST = b"Host: localhost\r\n"
_HEAD = b"POST /directive/consume HTTP/1.1\r\n" + _HOST + b"Content-Type: application/json\r\n"
_REQUESTS = (
    _HEAD + b'Content-Length: 12\r\n\r\n{"id":"d-1"}',
    _HEAD + b'Transfer-Encoding: chunked\r\n\r\n6;x=y\r\n{"id":\r\n6\r\n"d-1"}\r\n0\r\n\r\n',
    _HEAD + b'Expect: 100-continue\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"id":"d-1"}',
    b"GET /inbox?wait=30&after=2026-01-31T09%3A00%3A00Z HTTP/1.1\r\n" + _HOST + b"Accept: */*\r\n\r\n",
    (b"GET /inbox HTTP/1.1\r\n" + _HOST + b"\r\n") * 3,
    b"POST /mcp HTTP/1.1\r\nhost: localhost:8443\r\ncontent-type: application/json; charset=utf-8\r\n"
    b'content-length: 40\r\n\r\n{"jsonrpc":"2.0","id":1,"method":"ping"}',
)  # fmt: skip


def _answering(read: Callable[[Request], object]) -> Handler:
    async def handler(request: Request) -> Response:
        read(request)
        return Response(200, b"{}")

    return handler


_APP = App(
    [
        Route("POST", "/directive/consume", _answering(lambda it: bodies.consume_body(it.body)), _JSON, 4096),
        Route("POST", "/mcp", _answering(lambda it: strict_json.parse(it.body, "body")), _JSON, 65536),
        Route("GET", "/inbox", _answering(agent._inbox_query)),
    ],
    ["localhost"],
)
_CONFIG = listen._uvicorn_config(_APP)


async def _talk(raw: bytes) -> bytes:
    """What a connection that receives these bytes, in two pieces, has sent when it is over."""
    loop, state, wrong = asyncio.get_running_loop(), ServerState(), list[Mapping[str, Any]]()
    loop.set_exception_handler(lambda _loop, context: wrong.append(context))
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        transport, connection = await loop.connect_accepted_socket(
            lambda: Connection(_CONFIG, state, Limits(), lambda _connection: True, Peer()), ours
        )
        gone: Awaitable[None] = connection.gone()
        for piece in (raw[: len(raw) // 2], raw[len(raw) // 2 :]):
            if piece and not transport.is_closing():
                connection.data_received(piece)
            while connection.waiting is Waiting.NOTHING:
                await asyncio.sleep(0)
        transport.close()
        await gone
        await asyncio.gather(*state.tasks)
        if wrong:
            raise AssertionError(f"the loop was told: {wrong}")
        return b"".join(iter(lambda: theirs.recv(65536), b""))


def _statuses(raw: bytes) -> tuple[int, ...]:
    """The statuses of the answers; whatever the bytes, each is whole and none says that something broke inside."""
    said, at, found = asyncio.run(_talk(raw)), 0, list[int]()
    while at < len(said):
        answer = _ANSWER.match(said, at)
        if not answer or int(answer[1]) not in _HONEST:
            raise AssertionError(f"answered {said[at:]!r}")
        found.append(int(answer[1]))
        at = answer.end()
    return tuple(found)


def _headers(raw: bytes) -> object:
    """Header lines as the HTTP parser hands them over, and what is asked of them."""
    pairs = [line.partition(b":")[::2] for line in raw.split(b"\n")]
    found = headers.collect([(name.strip().lower(), value.strip()) for name, value in pairs])
    values = (headers.host_name(value) for value in found.values())
    return tuple(values), [headers.is_type(value, _JSON) for value in found.values()]


TARGETS = (
    Target("HTTP", ("broker.doors.agent._inbox_query",), _statuses, _REQUESTS, tuple, (), tries=600),
    Target(
        "headers",
        ("broker.doors.headers.collect", "broker.doors.headers.host_name", "broker.doors.headers.is_type"),
        _headers,
        (b"host: a:1\naccept: x\naccept: y\ncontent-type: application/json; charset=utf-8", b"host: [::1]:8443"),
        tuple,
    ),
    Target("query", ("broker.doors.headers.query",), headers.query, (b"wait=30&after=x%20y", b"agent=worker-a"), dict),
)
