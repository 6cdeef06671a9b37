"""One table of routes behind a door: path, then method, then content type, then size; only then a handler."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from broker.doors import headers as heads
from broker.doors.headers import Headers
from broker.doors.peer import Peer
from broker.errors import Malformed

log = logging.getLogger("lever.doors")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Extra = tuple[tuple[bytes, bytes], ...]
Handler = Callable[["Request"], Awaitable["Response"]]

_NO_QUERY: Mapping[str, str] = MappingProxyType({})
_CLOSE = (b"connection", b"close")


@dataclass(slots=True)
class Request:
    """What a handler gets. Header names are in lower case; the body is whole and within the route's size."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Headers
    body: bytes
    peer: Peer

    @property
    def client_certificate_der(self) -> bytes | None:
        """The certificate that TLS accepted on this connection. Its dates are the handler's to check, each time."""
        return self.peer.certificate_der

    @property
    def peer_uid(self) -> int | None:
        """The user at the other end of a unix socket."""
        return self.peer.uid

    @property
    def connection(self) -> dict[str, object]:
        """For the routes' own use, as long as the connection lasts."""
        return self.peer.connection

    async def wait(self, waited: Awaitable[object]) -> None:
        """Wait, but no longer than the client is there and the door is open. Never for a turn."""
        await self.peer.wait(waited)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. With `stream`, its pieces follow as they come and `body` is not used.

    A stream ends with its reader or the door, unless it is_answer: that is work, which nobody's leaving stops and a
    closing door lets finish, like any other.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    stream: AsyncIterator[bytes] | None = None
    is_answer: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path. A route without a content type takes no body at all."""

    method: str
    path: str
    handler: Handler
    content_type: str = ""
    max_body_bytes: int = 0


class _Unfit(Exception):
    """A request that reaches no handler."""

    def __init__(self, status: int, error: str, *extra: tuple[bytes, bytes]) -> None:
        super().__init__(error)
        self.response = _error(status, error)
        self.extra: Extra = extra


class _Gone(Exception):
    """The client left before its request was whole."""


class App:
    """An ASGI application over a table of routes.

    hosts: the names this door is reached by, without port. uids: who may use it, for a unix socket; None asks nobody.
    A request with an Origin comes from a browser page and gets nothing.
    """

    def __init__(self, routes: Iterable[Route], hosts: Collection[str], uids: Collection[int] | None = None) -> None:
        self._table: dict[bytes, dict[str, Route]] = {}
        for route in routes:
            methods = self._table.setdefault(route.path.encode("ascii"), {})
            if route.method in methods:
                raise ValueError(f"two routes for {route.method} {route.path}")
            methods[route.method] = route
        self._hosts = frozenset(host.lower().encode("ascii") for host in hosts)
        self._uids = None if uids is None else frozenset(uids)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            route, headers, query = self._fit(scope)
        except _Unfit as unfit:
            await _answer(scope, send, unfit.response, unfit.extra)
            return
        extra: Extra = ()
        try:
            body = await _body(receive, route.max_body_bytes)
            response = await route.handler(Request(route.method, route.path, query, headers, body, scope["peer"]))
        except _Gone:
            return
        except _Unfit as unfit:
            response = unfit.response
        except Malformed as malformed:
            response = _error(400, str(malformed))
        except asyncio.CancelledError:
            # Only the closing door cancels, after its grace. Whether the work was done is not known here.
            response, extra = _error(503, "the broker is stopping"), (_CLOSE,)
        except Exception:
            log.exception("a handler failed", extra={"path": route.path})
            response = _error(500, "internal error")
        await _answer(scope, send, response, extra)

    def _fit(self, scope: Scope) -> tuple[Route, Headers, Mapping[str, str]]:
        """All that is decided before the body is read. Raises _Unfit."""
        headers: Headers = {}
        try:
            headers = heads.collect(scope["headers"])
            self._check_caller(scope, headers)
            route = self._route(scope, headers)
            return route, headers, heads.query(scope["query_string"]) if scope["query_string"] else _NO_QUERY
        except Malformed as malformed:
            raise _Unfit(400, str(malformed), _CLOSE) from None
        except _Unfit as unfit:
            if b"expect" in headers:  # now the client may send the body or not: only a new connection is unambiguous
                unfit.extra = (*unfit.extra, _CLOSE)
            raise

    def _route(self, scope: Scope, headers: Headers) -> Route:
        """The route for this path, method, content type and declared size. Raises _Unfit."""
        methods = self._table.get(scope["raw_path"])
        if methods is None:
            raise _Unfit(404, "not found")
        route = methods.get(scope["method"])
        if route is None:
            raise _Unfit(405, "method not allowed", (b"allow", ", ".join(sorted(methods)).encode("ascii")))
        if not route.content_type:
            if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
                raise _Unfit(400, "this route takes no body")
        elif not heads.is_type(headers.get(b"content-type", b""), route.content_type):
            raise _Unfit(415, f"expected content-type {route.content_type}")
        elif int(headers.get(b"content-length", b"0")) > route.max_body_bytes:
            raise _too_large(route.max_body_bytes)
        return route

    def _check_caller(self, scope: Scope, headers: Headers) -> None:
        """Who asks, by which name, in which dialect. Raises _Unfit."""
        if self._uids is not None and scope["peer"].uid not in self._uids:
            raise _Unfit(403, "this user may not use this socket (operator.uids in the configuration)")
        if b"origin" in headers:
            raise _Unfit(403, "forbidden")
        if scope["http_version"] != "1.1":
            raise _Unfit(505, "expected HTTP/1.1")
        host = headers.get(b"host")
        if host is None:
            raise _Unfit(400, "host: missing")
        if host not in self._hosts and heads.host_name(host) not in self._hosts:
            raise _Unfit(421, "not reachable by this host name")
        if headers.get(b"expect", b"100-continue").lower() != b"100-continue":
            raise _Unfit(417, "expect: only 100-continue")


def _error(status: int, error: str) -> Response:
    return Response(status, json.dumps({"error": error}, separators=(",", ":")).encode("ascii"))


def _too_large(max_bytes: int) -> _Unfit:
    return _Unfit(413, f"a body of at most {max_bytes} bytes is taken here")


async def _body(receive: Receive, max_bytes: int) -> bytes:
    """The whole body. Raises _Unfit as soon as it is too large, _Gone if the client leaves."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise _Gone
        body += message["body"]
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        more = message["more_body"]
    return body


async def _answer(scope: Scope, send: Send, response: Response, extra: Extra) -> None:
    """Status, two headers and the body: nothing that depends on the time or on the cause."""
    kind = (b"content-type", response.content_type.encode("ascii"))
    if response.stream is None:
        length = (b"content-length", b"%d" % len(response.body))
        await send({"type": "http.response.start", "status": response.status, "headers": (kind, length, *extra)})
        await send({"type": "http.response.body", "body": response.body})
        return
    await send({"type": "http.response.start", "status": response.status, "headers": (kind, *extra)})
    await send({"type": "http.response.body", "body": b"", "more_body": True})  # the head leaves before the first piece
    pumped = _pump(response.stream, send)
    await (pumped if response.is_answer else scope["peer"].wait(pumped))
    await send({"type": "http.response.body", "body": b""})


async def _pump(stream: AsyncIterator[bytes], send: Send) -> None:
    """Send each piece as it comes. However it ends, the stream is closed in this task, not later by the collector."""
    try:
        async for piece in stream:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    finally:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()
