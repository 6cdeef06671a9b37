"""An upstream server over Streamable HTTP: the SDK's client on a transport that bounds answers and keeps evidence."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from broker.effects.tool_servers.events import Events, against
from broker.effects.tool_servers.link import PASSAGE, Link, Passage
from broker.wire.escape import escaped

CONNECT_S = 10.0
NOTICE_S = 10.0
_KEPT_S = 4.0  # shorter than servers keep a silent connection: one that is being closed is not a good one to send on
_UNREACHED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]


@asynccontextmanager
async def reached(url: str, headers: Mapping[str, str], link: Link, most_bytes: int) -> AsyncIterator[Streams]:
    """A session's two streams. Nothing of the environment counts: no proxies, no .netrc."""
    async with (
        httpx2.AsyncClient(
            transport=_Guarded(link, most_bytes),
            headers={**headers, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(None, connect=CONNECT_S, pool=CONNECT_S),
            trust_env=False,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=most_bytes) as streams,
    ):
        yield streams


@cache
def _trusted() -> ssl.SSLContext:
    """The system's certificate authorities: reading them takes longer than everything else of a session."""
    return ssl.create_default_context()


class _Guarded(httpx2.AsyncBaseTransport):
    """Raises for no request's failure: that would end every other request of the session. 502 is told to its caller."""

    def __init__(self, link: Link, most_bytes: int) -> None:
        self._link = link
        self._most_bytes = most_bytes
        limits = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=_KEPT_S)
        self._inner = httpx2.AsyncHTTPTransport(verify=_trusted(), trust_env=False, limits=limits)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        passage = PASSAGE.get() or Passage()
        passage.astray = ""
        try:
            # Until a notice has gone out the SDK sends nothing else: it may not take for ever.
            async with asyncio.timeout(NOTICE_S if _is_notice(request) else None):
                response = await self._inner.handle_async_request(request)
                return await self._judged(request, response, passage)
        except _UNREACHED as error:
            passage.unsent = f"it can't be reached: {escaped(str(error))}"
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError):
            passage.astray = "the connection was lost"
        if request.method == "POST":
            self._link.wear()
        return httpx2.Response(502, request=request)

    async def _judged(self, request: httpx2.Request, response: httpx2.Response, passage: Passage) -> httpx2.Response:
        """The response, whole if it is no stream of events; with what speaks against it as the server's own answer."""
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        plain = response.headers.get("content-encoding", "identity") == "identity"
        if response.status_code == 200 and kind == "text/event-stream" and plain:
            response.headers["content-type"] = "text/event-stream; charset=utf-8"  # as it is judged, it is read
            response.stream = Events(
                response.stream, self._link, passage, self._most_bytes, is_answer=request.method == "POST"
            )
            return response
        body = bytearray()
        try:
            if plain:
                async for chunk in response.stream:
                    body += chunk[: self._most_bytes + 1 - len(body)]
                    if len(body) > self._most_bytes:
                        break
        finally:
            await response.aclose()
        passage.astray = self._against(response.status_code, kind, plain, len(body))
        if not passage.astray and (why := against(bytes(body))):
            passage.astray = why
            self._link.lose(why)
        if response.status_code >= 400 and request.method == "POST":
            self._link.wear()  # an unknown session, say: the next call asks for a new one
        if passage.astray:
            return httpx2.Response(502, request=request)
        headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"transfer-encoding"]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    def _against(self, status: int, kind: str, plain: bool, length: int) -> str:
        if not plain:
            return "its answer is compressed, which was not asked for"
        if length > self._most_bytes:
            return f"its answer has more than {self._most_bytes} bytes"
        if status >= 500 or (status == 200 and kind != "application/json"):
            return f"it answered with HTTP status {status} and no message of the protocol"
        return ""


def _is_notice(request: httpx2.Request) -> bool:
    """Anything but a request of the protocol: the SDK sends these one at a time."""
    return request.method == "POST" and not (b'"id"' in request.content and b'"method"' in request.content)
