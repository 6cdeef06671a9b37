"""One connection: uvicorn's HTTP/1.1 protocol with deadlines, sizes, and nothing but plain requests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from broker.doors.deadlines import Limits, Waiting, allowed_s
from broker.doors.peer import Peer

_HIGH_WATER_BYTES = 65536


def _closing(status: bytes, error: bytes) -> bytes:
    body = b'{"error":"%b"}' % error
    head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d" % len(body)
    return b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, head, body)


_MALFORMED = _closing(b"400 Bad Request", b"malformed HTTP")
_OVERDUE = _closing(b"408 Request Timeout", b"the request came too slowly")
_MESSAGE_TOO_LARGE = _closing(b"413 Request Entity Too Large", b"request too large")
_HEAD_TOO_LARGE = _closing(b"431 Request Header Fields Too Large", b"request head too large")
_TOO_MANY = _closing(b"429 Too Many Requests", b"too many requests at once")


class _InOnePiece:
    """A transport for one answer: its head leaves together with the first bytes of its body, as one write."""

    __slots__ = ("_head", "_started", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._started = False
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._started:
            self._transport.write(self._head + data)
            self._head = b""
        elif data.startswith(b"HTTP/1.1 100 "):
            self._transport.write(data)
        else:
            self._started, self._head = True, data

    def flush(self) -> None:
        """What is held back, where no body comes: an answer to HEAD has none."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()


class _Refused(Exception):
    """Stops the parser inside a callback; what to answer lies in the connection."""


class Connection(HttpToolsProtocol):
    """Adds to uvicorn's protocol: who is at the other end, what we wait for and until when, caps in bytes.

    admit is asked once, after the handshake; False closes the connection. A client that leaves cancels nothing.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        limits: Limits,
        admit: Callable[[Connection], bool],
        peer: Peer,
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.access_log = False
        self.peer = peer
        self.holder: str | None = None
        self.opened_at = self.loop.time()
        self.waiting = Waiting.NOTHING
        self.deadline_at = math.inf
        self._limits = limits
        self._allowed_s = allowed_s(limits)
        self._admit = admit
        self._running: RequestResponseCycle | None = None
        self._last: RequestResponseCycle | None = None
        self._gone: asyncio.Future[None] | None = None
        self._in_head = False
        self._deaf = False
        self._piece_bytes = 0
        self._message_bytes = 0
        self._refusal = _MALFORMED

    # the transport's side

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.peer.certificate_der = tls.getpeercert(binary_form=True)
            self.holder = _holder(transport.get_extra_info("peercert"))
        if not self._admit(self):
            transport.abort()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.pipeline.clear()
        self.deadline_at = math.inf
        if (cycle := self._at_work()) is not None:
            _abandon(cycle)
        self.peer.end()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Feed the parser in pieces no larger than a head may be, so that a head's size is known well enough."""
        step = self._limits.max_header_bytes
        if len(data) <= step:
            self._feed(data)
        else:
            view = memoryview(data)
            for start in range(0, len(data), step):
                self._feed(view[start : start + step])
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    # the parser's side

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._message_bytes = self._piece_bytes

    def on_headers_complete(self) -> None:
        if self._message_bytes > self._limits.max_header_bytes:
            lengths = (len(name) + len(value) + 4 for name, value in self.headers)
            if len(self.url) + sum(lengths) > self._limits.max_header_bytes:
                self._stop_parsing(_HEAD_TOO_LARGE)
        if self.parser.should_upgrade() or not self.url.startswith(b"/"):
            self._stop_parsing(_MALFORMED)
        if len(self.pipeline) >= self._limits.max_pipelined:
            self._stop_parsing(_TOO_MANY)
        super().on_headers_complete()
        self._last = self.cycle
        self._in_head = False
        self.headers = []  # trailers land here, apart from the headers that the application sees

    def on_message_complete(self) -> None:
        if self.headers:
            self._stop_parsing(_MALFORMED)
        super().on_message_complete()
        self.cycle.more_body = False  # uvicorn leaves it when the answer came first

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._answer = cycle.transport = _InOnePiece(self.transport)  # type: ignore[assignment]  # all it asks of one
        cycle.scope["peer"] = self.peer  # type: ignore[typeddict-unknown-key]  # ours
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """As uvicorn's, without its keep-alive timer."""
        self._answer.flush()
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        self._look()

    def _feed(self, piece: bytes | memoryview) -> None:
        if self._deaf or self.transport.is_closing():
            return
        self._piece_bytes = len(piece)
        self._message_bytes += len(piece)
        try:
            self.parser.feed_data(piece)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(self._refusal)
            return
        if self._in_head and self._message_bytes > 2 * self._limits.max_header_bytes:
            self._refuse(_HEAD_TOO_LARGE)
        elif self._message_bytes > self._limits.max_message_bytes:
            self._refuse(_MESSAGE_TOO_LARGE)

    def _stop_parsing(self, refusal: bytes) -> None:
        self._refusal = refusal
        raise _Refused

    def _refuse(self, answer: bytes) -> None:
        """Take nothing more from this client. A request that is at work still gets its own answer first."""
        self._deaf = True
        self.pipeline.clear()
        cycle = self._at_work()
        if cycle is not None and not cycle.more_body:
            cycle.keep_alive = False
            return
        answered = self._draining() if cycle is None else cycle.response_started
        if not answered:
            self.transport.write(answer)
        if cycle is not None:
            _abandon(cycle)
        self.transport.close()

    # what we wait for

    def _at_work(self) -> RequestResponseCycle | None:
        """The request that has a handler and not yet its whole answer."""
        cycle = self._running
        return None if cycle is None or cycle.response_complete else cycle

    def _draining(self) -> bool:
        """Is the rest of an already answered request still to come?"""
        return self._last is not None and self._last.response_complete and self._last.more_body

    def _owed(self) -> Waiting:
        if self.transport.is_closing():
            return Waiting.CLOSE
        if self.flow.write_paused:
            return Waiting.READ
        cycle = self._running
        if cycle is not None and not cycle.response_complete:
            return Waiting.BODY if cycle.more_body else Waiting.NOTHING
        if self._in_head:
            return Waiting.HEAD
        if self._draining():
            return Waiting.DRAIN
        return Waiting.FIRST if self._last is None else Waiting.IDLE

    def _look(self) -> None:
        """Note what we wait for now. The time runs from the moment that this changes, not from the last byte."""
        waiting = self._owed()
        if waiting is not self.waiting:
            self.waiting = waiting
            self.deadline_at = self.loop.time() + self._allowed_s[waiting]

    # the door's side

    def overdue(self) -> None:
        """The deadline has passed: end the connection, with a word where a request was under way."""
        if self.waiting in (Waiting.READ, Waiting.CLOSE):
            self.transport.abort()
        elif self.waiting in (Waiting.HEAD, Waiting.BODY):
            self._refuse(_OVERDUE)
        else:
            self.transport.close()
        self._look()

    def wind_down(self) -> None:
        """Close once the request at work is answered, at once if there is none. Long polls and streams end."""
        self.peer.end()
        self.pipeline.clear()
        if (cycle := self._at_work()) is not None:
            cycle.keep_alive = False
        else:
            self.transport.close()
        self._look()

    def may_make_room(self) -> bool:
        """Does a stranger keep us waiting, one without a certificate that stands?"""
        return self.holder is None and self.waiting is not Waiting.NOTHING

    def gone(self) -> asyncio.Future[None]:
        """Done when the connection is lost."""
        if self._gone is None:
            self._gone = self.loop.create_future()
        return self._gone


def _abandon(cycle: RequestResponseCycle) -> None:
    """Nobody hears the answer any more. The handler is told if it asks, and is never stopped."""
    cycle.disconnected = True
    cycle.message_event.set()


def _holder(certificate: dict[str, Any] | None) -> str | None:
    """Whose certificate this is, as the ssl module shows it: the identity in it, generation included, or its CN."""
    identities = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
    names = [value for rdn in (certificate or {}).get("subject", ()) for name, value in rdn if name == "commonName"]
    return next(iter([*identities, *names]), None)
