"""How a pointer reaches an agent. A channel carries the fixed sentence and an id, never anything else."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from broker.errors import Malformed, Unavailable
from broker.wire import names, pointer
from broker.wire.escape import escaped
from broker.wire.names import Cn, DirectiveId

MAX_ERROR_BYTES = 64 * 1024
_LAST_WORDS_S = 1.0
_PLACEHOLDER = re.compile(r"\{(agent|id|text)\}")
_ENVIRONMENT = ("PATH", "HOME", "LANG")


class Channel(Protocol):
    """One way to tell an agent an id."""

    @property
    def name(self) -> str:
        """What the journal calls it."""

    async def deliver(self, cn: Cn, id: DirectiveId) -> None:
        """Tell the agent. Returns when that is done; raises Unavailable, with words for the log, when it is not."""


class InboxChannel:
    """The built-in channel: GET /inbox offers the id, so delivering means waking those who wait for it."""

    name = "inbox"

    def __init__(self) -> None:
        self._waiters: dict[Cn, set[asyncio.Future[None]]] = {}
        self._wakes: dict[Cn, int] = {}
        self._closed = False

    async def deliver(self, cn: Cn, id: DirectiveId) -> None:
        """Wake the long polls of this agent."""
        self.wake(cn)

    def mark(self, cn: Cn) -> int:
        """A place in this agent's history: taken before looking, it lets `wait` miss nothing that came meanwhile."""
        return self._wakes.get(cn, 0)

    async def wait(self, cn: Cn, timeout_s: float, mark: int | None = None) -> None:
        """Return at the next wake of this agent (or the first since `mark`), after timeout_s, or at close."""
        if self._closed or (mark is not None and mark != self.mark(cn)):
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(cn, set()).add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=timeout_s)
        finally:
            waiter.cancel()
            if waiting := self._waiters.get(cn):
                waiting.discard(waiter)
                if not waiting:
                    del self._waiters[cn]

    def wake(self, cn: Cn) -> None:
        """Let every long poll of this agent look again: something about it has changed."""
        self._wakes[cn] = self.mark(cn) + 1
        for waiter in self._waiters.pop(cn, ()):
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """End all waiting, now and from now on: the daemon is going."""
        self._closed = True
        for cn in list(self._waiters):
            self.wake(cn)


class CommandChannel:
    """Runs the operator's command: no shell, a fixed environment, no input, a deadline, success by exit status 0.

    argv: the words, of which all but the first may hold {agent}, {id}, {text}; folder: where it runs;
    environment: the whole of it. The command runs in a session of its own, and nothing in it outlives the delivery.
    """

    name = "command"

    def __init__(self, argv: Sequence[str], timeout_s: float, *, folder: Path, environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._timeout_s = timeout_s
        self._folder = folder
        self._environment = dict(environment)

    async def deliver(self, cn: Cn, id: DirectiveId) -> None:
        """Run the command once."""
        argv = self._words(cn, id)
        program = escaped(argv[0])
        transport, watch = await self._start(argv, program)
        try:
            async with asyncio.timeout(self._timeout_s):
                await watch.ended
        except TimeoutError as error:
            raise Unavailable(f"{program} was killed: it had not ended after {self._timeout_s:g} s") from error
        finally:
            await _end(transport, watch)
        if watch.flooded:
            raise Unavailable(f"{program} was killed: it wrote more than {MAX_ERROR_BYTES} bytes of errors")
        if status := transport.get_returncode():
            raise Unavailable(f"{program} {_ending(status)}{_first_line(watch.errors)}")

    async def _start(self, argv: Sequence[str], program: str) -> tuple[asyncio.SubprocessTransport, _Watch]:
        starting = asyncio.get_running_loop().create_task(self._spawn(argv))
        try:
            return await asyncio.shield(starting)
        except OSError as error:
            raise Unavailable(f"{program} can't be started: {(error.strerror or 'unknown error').lower()}") from error
        except asyncio.CancelledError:  # half started: only who has it whole can end it with all its children
            with suppress(OSError):
                await _end(*await starting)
            raise

    async def _spawn(self, argv: Sequence[str]) -> tuple[asyncio.SubprocessTransport, _Watch]:
        return await asyncio.get_running_loop().subprocess_exec(
            _Watch, *argv, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE,
            cwd=self._folder, env=self._environment, start_new_session=True,
        )  # fmt: skip

    def _words(self, cn: Cn, id: DirectiveId) -> list[str]:
        """The command's words with the placeholders filled in, one word each, whatever is filled in."""
        try:
            values = {"agent": names.cn(cn), "id": names.directive_id(id), "text": pointer.sentence(id)}
        except Malformed as error:
            raise Unavailable(f"not told: {error}") from error
        words = [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in self._argv]
        for written, word in zip(self._argv, words, strict=True):
            if written == "--":
                break
            if word.startswith("-") and not written.startswith("-"):
                raise Unavailable("not told: the id would be read as an option; put -- before {id} in the command")
        return words


def environment_of(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command may know of the daemon's environment."""
    return {name: environ[name] for name in _ENVIRONMENT if name in environ}


class _Watch(asyncio.SubprocessProtocol):
    """Follows one process. ended: it exited or wrote too much; gone: nothing of it is left to read."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.errors = bytearray()
        self.flooded = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if len(self.errors) + len(data) > MAX_ERROR_BYTES and not self.ended.done():
            self.flooded = True
            self.ended.set_result(None)
        self.errors += data[: MAX_ERROR_BYTES - len(self.errors)]

    def process_exited(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


async def _end(transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
    """Kill what is left of the session, hear its last words if it failed, and give everything back."""
    # The group's number stays taken as long as anything is in the group, and numbers come round too slowly to have
    # been given to a stranger in the moment since the leader ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), signal.SIGKILL)
    if transport.get_returncode() != 0:
        await asyncio.wait({watch.gone}, timeout=_LAST_WORDS_S)
    transport.close()
    await asyncio.wait({watch.gone}, timeout=_LAST_WORDS_S)


def _ending(status: int) -> str:
    return f"ended with exit status {status}" if status > 0 else f"was ended by signal {-status}"


def _first_line(errors: bytes | bytearray) -> str:
    line = errors.decode("utf-8", "replace").strip().partition("\n")[0].strip()
    return f": {escaped(line)}" if line else ""
