"""The tool servers of a broker: one connection for each server and holder, made when it is needed and ended after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from broker.effects.tool_servers import sandbox
from broker.effects.tool_servers.connection import Connection, Streams
from broker.effects.tool_servers.credentials import resolve
from broker.effects.tool_servers.http import reached
from broker.effects.tool_servers.link import Link
from broker.effects.tool_servers.look import Look
from broker.effects.tool_servers.outcome import Holder, NotSent, Outcome, Unknown
from broker.effects.tool_servers.process import started
from broker.effects.tool_servers.settings import Server
from broker.effects.tool_servers.speech import Speech
from broker.errors import Malformed
from broker.rules import backoff
from broker.wire import server_identity, strict_json
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Instant
from broker.wire.strict_json import as_object
from broker.wire.times import SECOND

MOST = 64
_ENVIRONMENT = ("PATH", "HOME", "LANG")
_FORGOTTEN_S = 600
_Key: TypeAlias = tuple[str, Holder | None]
log = logging.getLogger("lever.tool_servers")


@dataclass(frozen=True, slots=True)
class _Failures:
    """Ends that nobody wanted, one after another without an answer between them; and when the next try may be."""

    count: int
    next_at: Instant
    why: str
    said: str


class ToolServers:
    """The only way to an upstream tool. All of it runs on one event loop.

    servers: by name; folder: where commands run, and what relative words in them stand for; environ: the broker's
    environment; hidden: the broker's files and folders; steady: a clock that nobody sets; chance: random, from 0 up
    to 1; most: connections at one moment.
    """

    def __init__(
        self,
        servers: Mapping[str, Server],
        *,
        folder: Path,
        environ: Mapping[str, str],
        hidden: Sequence[Path],
        steady: Callable[[], Instant],
        chance: Callable[[], float],
        most: int = MOST,
    ) -> None:
        self._servers = dict(servers)
        self._folder = folder
        self._environ = environ
        self._hidden = tuple(hidden)
        self._steady = steady
        self._chance = chance
        self._most = most
        self._current: dict[_Key, Connection] = {}
        self._all: set[Connection] = set()
        self._failures: dict[_Key, _Failures] = {}
        self._rooms = {name: asyncio.Lock() for name in servers}
        self._uses = 0
        self._stopped = False

    async def call(self, holder: Holder, tool: PinnedTool, arguments: bytes, timeout_s: float) -> Outcome:
        """Call a tool once, with these frozen arguments: one JSON object.

        Over the connection that was looked at, and only while the tool is defined there so. timeout_s: for the answer;
        the server's own limit, if that is less. Raises NotSent when provably nothing was sent, Unknown when that is
        not known. A cancelled call may have been carried out.
        """
        server, limit_s = tool.server, min(timeout_s, self._server(tool.server).timeout_s)
        try:
            as_object(strict_json.parse(arguments, "arguments"), "arguments")
        except Malformed as error:
            raise NotSent(f"{server}: {error}") from error
        if not (connection := self._sound((server, holder))):
            raise NotSent(f"{server}: it ended since its tools were looked at")
        self._use(connection)
        try:
            outcome = await connection.call(tool, arguments, limit_s)
        except NotSent as error:
            raise NotSent(f"{server}: {error.what}") from error
        except Unknown as error:
            raise Unknown(f"{server}: {error.why}") from error
        self._failures.pop((server, holder), None)
        return outcome

    def looked(self, holder: Holder | None, server: str) -> Look | None:
        """The last look at what this holder's own process or session defines, as long as it counts."""
        connection = self._sound((server, holder))
        return connection.look if connection else None

    async def look(self, holder: Holder | None, server: str, at: float, since: float) -> Look:
        """What a server defines on this holder's connection, or on the broker's own; it is started if need be.

        at: now; since: a look from later than that is good enough. Raises NotSent, Malformed.
        """
        connection = await self._ready((server, holder))
        try:
            found = await connection.see(server, _reached(self._server(server)), at, since)
        except NotSent as error:
            raise NotSent(f"{server}: {error.what}", connection.link.said()) from error
        except Malformed as error:
            raise Malformed(f"{server}: {error.where}", error.why) from error
        if holder is None:  # an agent's process has to answer a call
            self._failures.pop((server, None), None)
        return found

    def retire(self, former: Callable[[Holder], bool]) -> None:
        """End what such holders have: their calls in hand go on, then their processes and sessions end."""
        for (_, holder), connection in list(self._current.items()):
            if holder and former(holder):
                connection.retire()

    @property
    def connections(self) -> int:
        """Processes and sessions that are not wholly gone."""
        return len(self._all)

    async def stop(self) -> None:
        """End every one now; no process is left when this returns."""
        self._stopped = True
        for connection in self._all:
            connection.close()
        while self._all:
            await asyncio.wait({connection.task for connection in self._all})
            await asyncio.sleep(0)  # until each has been struck off

    def _server(self, name: str) -> Server:
        if not (server := self._servers.get(name)):
            raise NotSent(f"{name}: there is no such server")
        return server

    async def _ready(self, key: _Key) -> Connection:
        """A sound connection, opened if need be. Raises NotSent."""
        server = self._server(key[0])
        connection = await self._connection(key, server)
        self._use(connection)
        try:
            async with connection.held():
                return connection
        except NotSent as error:
            raise NotSent(f"{key[0]}: {error.what}", connection.link.said()) from error

    def _use(self, connection: Connection) -> None:
        self._uses += 1
        connection.used = self._uses

    def _sound(self, key: _Key) -> Connection | None:
        found = self._current.get(key)
        return found if found and not found.worn else None

    async def _connection(self, key: _Key, server: Server) -> Connection:
        while True:
            if self._stopped:
                raise NotSent(f"{key[0]}: the broker is stopping")
            if found := self._sound(key):
                return found
            self._check_pause(key)
            if len(self._all) < self._most:
                break
            await self._make_room()
        connection = Connection(lambda link: self._way(key[0], server, link), server.idle_s, self._rooms[key[0]])
        self._current[key] = connection
        self._all.add(connection)
        connection.task.add_done_callback(lambda _: self._ended(key, connection))
        return connection

    async def _make_room(self) -> None:
        """Wait for one to end: one that is ending, else the one unused for longest. Raises NotSent."""
        ending = [connection for connection in self._all if connection.worn and not connection.in_hand]
        idle = ending or [connection for connection in self._all if not connection.in_hand]
        if not idle:
            raise NotSent(f"all {self._most} processes and sessions of tool servers are busy")
        victim = min(idle, key=lambda connection: connection.used)
        victim.retire()
        await asyncio.wait({victim.task})
        await asyncio.sleep(0)

    def _check_pause(self, key: _Key) -> None:
        failures, now = self._failures.get(key), self._steady()
        if failures and failures.next_at > now:
            seconds = -(-(failures.next_at - now) // SECOND)
            raise NotSent(f"{key[0]}: {failures.why}; it is tried again in {seconds} s", failures.said)

    def _ended(self, key: _Key, connection: Connection) -> None:
        self._all.discard(connection)
        if self._current.get(key) is connection:
            del self._current[key]
        if not connection.failed:
            return
        now = self._steady()
        for old in [old for old, failures in self._failures.items() if failures.next_at < now - _FORGOTTEN_S * SECOND]:
            del self._failures[old]
        count = self._failures[key].count + 1 if key in self._failures else 1
        why = connection.link.lost
        next_at = backoff.next_at(now, count, self._chance())
        self._failures[key] = _Failures(count, next_at, why, connection.link.said())
        log.warning("a tool server failed", extra={"server": key[0], "holder": key[1] and key[1].cn, "why": why})

    def _way(self, name: str, server: Server, link: Link) -> AbstractAsyncContextManager[Streams]:
        if server.url:
            return self._over_http(server, server.url, link)
        return self._over_pipes(name, server, link)

    @asynccontextmanager
    async def _over_http(self, server: Server, url: str, link: Link) -> AsyncIterator[Streams]:
        headers = resolve(server.headers, self._environ)
        async with reached(url, headers, link, server.max_output_bytes) as streams:
            yield streams

    @asynccontextmanager
    async def _over_pipes(self, name: str, server: Server, link: Link) -> AsyncIterator[Streams]:
        environment = {key: self._environ[key] for key in _ENVIRONMENT if key in self._environ}
        environment |= resolve(server.env, self._environ)
        argv = tuple(server.command or ())
        if server.sandbox:
            environment["HOME"] = sandbox.HOME
            argv = sandbox.confined(argv, server.sandbox, self._environ, self._hidden)
        speech = Speech(name, self._steady)
        link.said = speech.last
        kept = server.sandbox is None  # a sandbox's own end ends all that is in it
        async with started(
            argv, environment, self._folder, link, speech, server.max_output_bytes, kept=kept
        ) as streams:
            yield streams


def _reached(server: Server) -> str:
    """How it is reached, as the operator accepts it."""
    return server_identity.by_url(server.url) if server.url else server_identity.by_command(server.command or ())
