"""A door that listens: it accepts, makes room, closes what is overdue, and closes itself in good order."""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from broker.doors.connection import Connection
from broker.doors.deadlines import Limits, Waiting
from broker.doors.peer import Peer
from broker.doors.socket import peer_uid

__all__ = ["Door", "Limits", "allow_descriptors"]

log = logging.getLogger("lever.doors")

_BACKLOG = 1024
_ACCEPTS_PER_WAKE = 64
_PAUSE_S = 0.2  # after the system refused us a descriptor or memory
_COMPLAIN_EVERY_S = 60.0
_CUT_S = 1.0
_RECEIVE_BYTES = 16384
_KEPT_FOR_STRANGERS = 16  # of so many places one is theirs, or nobody could enrol


class Door:
    """Some listening sockets and the application behind them, on the running event loop.

    context: for TLS; None for a unix socket. stands: is this client certificate (DER) still somebody's? If not, its
    holder is a stranger here. The sockets are bound already and belong to the door from now on.
    Connections are accepted here, not by the loop's own server: so unfinished handshakes can be counted and dropped.
    """

    def __init__(
        self,
        name: str,
        app: Callable[..., Any],
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        stands: Callable[[bytes], bool] = lambda _der: True,
    ) -> None:
        self.name = name
        self._sockets = list(sockets)
        self._context = context
        self._limits = limits or Limits()
        self._stands = stands
        self._config = _uvicorn_config(app)
        self._state = ServerState()
        self._arriving: dict[asyncio.Task[None], None] = {}  # in order of arrival
        self._sweeper: asyncio.TimerHandle | None = None
        self._complained_at = -math.inf

    @property
    def addresses(self) -> list[Any]:
        """Where the door listens, as socket addresses."""
        return [listener.getsockname() for listener in self._sockets]

    @property
    def connections(self) -> int:
        """How many connections are open, handshakes not counted."""
        return len(self._state.connections)

    async def start(self) -> None:
        """Listen and accept."""
        self._loop = asyncio.get_running_loop()
        for listener in self._sockets:
            listener.setblocking(False)
            listener.listen(_BACKLOG)
            self._loop.add_reader(listener, self._accept, listener)

    async def close(self, grace_s: float) -> None:
        """Accept no more, end long polls and streams, let requests at work finish; after the grace, cut the rest."""
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.remove_reader(listener)
            listener.close()
        self._sockets.clear()
        for task in self._arriving:
            task.cancel()
        for connection in self._open():
            connection.wind_down()
        await self._settle(grace_s)
        for work in list(self._state.tasks):
            work.cancel()
        await self._settle(_CUT_S)
        for connection in self._open():
            connection.transport.abort()
        await self._settle(_CUT_S)
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _settle(self, timeout_s: float) -> None:
        """Wait until no handshake, request or connection is left, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while left := [*self._arriving, *self._state.tasks, *(each.gone() for each in self._open())]:
                    await asyncio.wait(left)

    def _open(self) -> list[Connection]:
        return cast(list[Connection], list(self._state.connections))

    # accepting

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            try:
                accepted, _address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._complain(f"cannot accept: {error}")
                self._loop.remove_reader(listener)
                self._loop.call_later(_PAUSE_S, self._resume, listener)
                return
            accepted.setblocking(False)
            if self._context is not None:
                # What lies in the buffer is decrypted in one go: from a large one, a client stops the door for seconds.
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            task = self._loop.create_task(self._arrive(accepted))
            self._arriving[task] = None
            task.add_done_callback(partial(self._arrived, accepted))
            if len(self._arriving) > self._limits.max_handshakes:
                # An honest handshake takes milliseconds: when there are too many, the oldest is a silent one.
                oldest = next(iter(self._arriving))
                del self._arriving[oldest]
                oldest.cancel()

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            self._loop.add_reader(listener, self._accept, listener)

    async def _arrive(self, accepted: socket.socket) -> None:
        """From an accepted socket to a connection, through the handshake. Raises what the handshake raises."""
        uid = peer_uid(accepted) if accepted.family == socket.AF_UNIX else None
        connection = Connection(self._config, self._state, self._limits, self._admit, Peer(uid=uid))
        tls: dict[str, Any] = {}
        if self._context is not None:
            tls = {
                "ssl": self._context,
                "ssl_handshake_timeout": self._limits.handshake_s,
                "ssl_shutdown_timeout": self._limits.close_s,
            }
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, **tls)
        finally:
            if connection.transport is None:  # never made
                connection.parser = None  # it and the connection hold each other

    def _arrived(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._arriving.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            accepted.close()  # also where the task never got to run
            log.debug("%s door: a connection did not arrive: %s", self.name, error)

    def _admit(self, connection: Connection) -> bool:
        """Is there room, or does another connection make room for this one?"""
        self._watch()
        if not self._known(connection):
            connection.holder = None
        if connection.holder is not None:
            same = sum(each.holder == connection.holder for each in self._open())
            if same > self._limits.max_connections_per_agent:
                self._complain(f"{connection.holder!r} holds too many connections")
                return False
        if len(self._state.connections) <= self._limits.max_connections:
            return True
        staying = [each for each in self._open() if not each.transport.is_closing()]
        if len(staying) <= self._limits.max_connections:
            return True
        self._complain("too many connections")
        loser = _loser(staying, connection, self._limits.max_connections)
        if loser is None:
            return False
        loser.transport.abort()
        return True

    def review(self) -> None:
        """Whose certificate stands no longer is a stranger from now on; who of them is idle goes."""
        for connection in self._open():
            if connection.holder is not None and not self._known(connection):
                connection.holder = None
                if connection.may_make_room():
                    connection.transport.abort()

    def _known(self, connection: Connection) -> bool:
        der = connection.peer.certificate_der
        return der is None or self._stands(der)

    def _complain(self, what: str) -> None:
        """Say it once a minute: whoever causes it could cause it a thousand times a second."""
        now = self._loop.time()
        if now - self._complained_at >= _COMPLAIN_EVERY_S:
            self._complained_at = now
            log.warning("%s door: %s", self.name, what)

    # deadlines

    def _watch(self) -> None:
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._limits.sweep_s(), self._sweep)

    def _sweep(self) -> None:
        """One timer for all connections: re-arming one of their own at each message would cost more."""
        self._sweeper = None
        now = self._loop.time()
        for connection in self._open():
            if connection.deadline_at <= now:
                connection.overdue()
        if self._state.connections:
            self._watch()


def allow_descriptors(wanted: int) -> None:
    """Raise this process's soft limit: connections, handshakes and children take some; 1024 are too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def _loser(staying: Sequence[Connection], newcomer: Connection, places: int) -> Connection | None:
    """Who makes room: a silent stranger; for an agent also one of the identity that holds most, and for a stranger too
    while agents hold the places that are kept for strangers.

    Of these the oldest, those at work last: whoever enrols is gone in a moment. Nobody loses an only connection so.
    """
    others = [each for each in staying if each is not newcomer]
    losers = [each for each in others if each.may_make_room()]
    held = Counter(each.holder for each in staying)
    del held[None]
    beyond = held.total() > places - places // _KEPT_FOR_STRANGERS
    if held and not losers and (newcomer.holder is not None or beyond):
        most = max(held.values())
        losers = [each for each in others if held[each.holder] == most > 1]
    return min(losers, key=lambda each: (each.waiting is Waiting.NOTHING, each.opened_at), default=None)


def _uvicorn_config(app: Callable[..., Any]) -> Config:
    """uvicorn's protocol without what belongs to its server: no lifespan, log set-up, date, proxies or environment."""
    config = Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        forwarded_allow_ips="",
        workers=1,
    )
    config.load()
    return config
