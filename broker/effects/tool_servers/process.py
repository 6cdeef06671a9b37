"""One server process over its standard streams: a session of its own, of which nothing is left at the end."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from broker.effects.tool_servers import values
from broker.effects.tool_servers.direct import Direct, number
from broker.effects.tool_servers.link import Link
from broker.effects.tool_servers.outcome import NotSent
from broker.effects.tool_servers.speech import Speech

GRACE_S = 2.0
_KEEPER = Path(__file__).with_name("keeper.py")
_CAN_KEEP = sys.platform == "linux"
LAST_WORDS_S = 0.2
MAX_UNREAD_BYTES = 8 * 1024 * 1024
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def started(
    argv: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    link: Link,
    speech: Speech,
    most_bytes: int,
    *,
    kept: bool = False,
) -> AsyncIterator[Streams]:
    """The process and its two streams. most_bytes: what it may write for each call in hand. Raises NotSent.

    kept: nothing else sees to it that what leaves its process group ends with it.
    """
    send, received = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    outgoing, written = anyio.create_memory_object_stream[SessionMessage](math.inf)
    with send, received, outgoing, written:
        child = _Child(send, link, speech, most_bytes, kept and _CAN_KEEP)
        transport = await _spawn(child, _kept(argv, environment, folder) if child.kept else argv, environment, folder)
        writer = asyncio.get_running_loop().create_task(_write(written, child))
        link.direct = child.direct
        polite = False
        try:
            yield received, outgoing
            polite = True
        finally:
            writer.cancel()
            child.direct.end(link.lost or "its connection has ended")
            try:
                if polite and not child.condemned:
                    await _leave(transport, child)
            finally:
                _kill(transport, child.kept)
                await asyncio.shield(_gone(transport, child))


def _kept(argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """The words that start it under its keeper. Raises NotSent."""
    program = folder / argv[0] if "/" in argv[0] else argv[0]
    if not shutil.which(program, path=environment.get("PATH")):
        raise NotSent("it can't be started: there is no such program")
    return (sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), *argv)


async def _spawn(
    child: _Child, argv: Sequence[str], environment: Mapping[str, str], folder: Path
) -> asyncio.SubprocessTransport:
    loop = asyncio.get_running_loop()

    async def spawn() -> asyncio.SubprocessTransport:
        transport, _ = await loop.subprocess_exec(
            lambda: child, *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE,
            cwd=folder, env=dict(environment), start_new_session=True,
        )  # fmt: skip
        return transport

    starting = loop.create_task(spawn())
    try:
        return await asyncio.shield(starting)
    except OSError as error:
        raise NotSent(f"it can't be started: {(error.strerror or 'unknown error').lower()}") from error
    except asyncio.CancelledError:  # half started: only who has it whole can end it with all its children
        with suppress(OSError):
            transport = await starting
            _kill(transport, child.kept)
            await _gone(transport, child)
        raise


async def _write(written: MemoryObjectReceiveStream[SessionMessage], child: _Child) -> None:
    """Each message as the SDK writes it: a line."""
    async for item in written:
        if isinstance(item.message, JSONRPCRequest):
            child.asked(number(item.message.id))
        elif isinstance(item.message, JSONRPCNotification) and item.message.method == "notifications/cancelled":
            child.settled(number((item.message.params or {}).get("requestId")))
        child.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


class _Child(asyncio.SubprocessProtocol):
    """Follows one process: its lines become messages; what is not one, or is too much, ends it."""

    def __init__(
        self,
        send: MemoryObjectSendStream[SessionMessage | Exception],
        link: Link,
        speech: Speech,
        most_bytes: int,
        kept: bool,
    ) -> None:
        self.kept = kept
        self.exited = asyncio.Event()
        self.gone = asyncio.Event()
        self.condemned = False
        self.direct = Direct(self.write, self.asked, self.settled)
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._send = send
        self._link = link
        self._speech = speech
        self._most_bytes = self._allowed_bytes = most_bytes
        self._requested = 0
        self._in_hand: set[int | None] = set()
        self._rest = bytearray()

    def asked(self, id: int | None) -> None:
        """One more request is in hand: its answer has to have room."""
        self._in_hand.add(id)
        self._allowed_bytes = self._most_bytes * len(self._in_hand)
        self._requested = 0

    def settled(self, id: int | None) -> bool:
        """This request is no longer in hand: it was answered, or nobody waits for its answer. False: it was not."""
        if id not in self._in_hand:
            return False
        self._in_hand.discard(id)
        self._allowed_bytes = self._most_bytes * max(len(self._in_hand), 1)
        return True

    def fail(self, why: str) -> None:
        """Nothing of it is believed any more."""
        self.condemned = True
        self._link.lose(why)
        self._send.close()
        self.direct.end(why)
        if self._transport:
            _kill(self._transport, self.kept)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def write(self, line: bytes) -> None:
        """To its standard input, as long as it reads there."""
        if self._stdin is None:
            assert self._transport
            self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))  # of whatever event loop
        self._stdin.write(line)
        if self._stdin.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.fail("it does not read what it is sent")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._speech.feed(data)
        elif not self._link.lost:
            self._allowed_bytes -= len(data)
            if self._allowed_bytes < 0:
                self.fail(f"it wrote more than {self._most_bytes} bytes, which is what a call may bring")
                return
            *lines, rest = data.split(b"\n")
            if lines:
                lines[0] = bytes(self._rest) + lines[0]
                self._rest.clear()
            self._rest += rest
            for line in lines:
                self._take(line)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:  # not 0: what it still has to say may explain why it closed that
            self._soon_over()

    def process_exited(self) -> None:
        self.exited.set()
        self._soon_over()  # also where a child of its own holds its pipes open

    def connection_lost(self, exc: Exception | None) -> None:
        self._speech.end()
        self._over()
        self.exited.set()
        self.gone.set()

    def _soon_over(self) -> None:
        """Its output may end before its exit status is known, or the other way round."""
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self._over)

    def _over(self) -> None:
        status = self._transport.get_returncode() if self._transport else None
        self._link.lose("it closed its standard output" if status is None else _ending(status))
        self._send.close()
        self.direct.end(self._link.lost)

    def _take(self, line: bytes) -> None:
        if not line.strip() or self._link.lost:
            return
        try:
            found = values.read(line)
            if self.direct.take(found):
                return
            message = jsonrpc_message_adapter.validate_python(found, by_name=False)
        except values.TooMany as error:
            self.fail(str(error))
            return
        except ValueError:
            self.fail("it wrote a line to its standard output that is no message of the protocol")
            return
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if not self.settled(number(message.id)):
                return  # to nothing that was asked, or to what nobody waits for: it makes no room for more
        elif isinstance(message, JSONRPCRequest):
            self._requested += values.at_most(line)
            if self._requested > values.MAX_TYPED:  # many small ones take as long as a large one
                self.fail(f"its requests hold more than {values.MAX_TYPED} values")
                return
        elif message.method == "notifications/tools/list_changed":
            self._link.tools_changed()  # before any answer that comes after it
        self._send.send_nowait(SessionMessage(message))


async def _leave(transport: asyncio.SubprocessTransport, child: _Child) -> None:
    """The polite end: its input ends, and it has a moment to leave."""
    if stdin := transport.get_pipe_transport(0):
        stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            await child.exited.wait()


def _kill(transport: asyncio.SubprocessTransport, kept: bool) -> None:
    """Whatever is left of its session; of all that it started, where it has a keeper."""
    if kept:
        with suppress(ProcessLookupError):
            transport.terminate()
        return
    # The group's number stays taken as long as anything is in the group, and numbers come round too slowly to have
    # been given to a stranger in the moment since the leader ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), signal.SIGKILL)


async def _gone(transport: asyncio.SubprocessTransport, child: _Child) -> None:
    """All is read and given back. A stranger that holds a pipe open can't keep us."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            await child.exited.wait()
            transport.close()
            await child.gone.wait()
    if not child.exited.is_set():  # a keeper whose charge can't be killed
        with suppress(ProcessLookupError):
            transport.kill()


def _ending(status: int) -> str:
    return f"it was ended by signal {-status}" if status < 0 else f"it ended with exit status {status}"
