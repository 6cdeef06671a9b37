"""Running a command of the operator's: no shell, a fixed environment, a deadline, success by exit status 0."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from broker.errors import Unavailable
from broker.wire.escape import escaped

MAX_OUTPUT_BYTES = 64 * 1024
_LAST_WORDS_S = 1.0
_ENVIRONMENT = ("PATH", "HOME", "LANG")


class Command:
    """argv: the words; folder: where it runs; environment: the whole of it.

    It runs in a session of its own, and nothing in it outlives the run.
    """

    def __init__(self, argv: Sequence[str], timeout_s: float, *, folder: Path, environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._timeout_s = timeout_s
        self._folder = folder
        self._environment = dict(environment)

    async def run(self, given: bytes | None = None) -> bytes:
        """Run it once, with these bytes to read, or none; what it wrote, if it was given any. Raises Unavailable."""
        program = escaped(self._argv[0])
        transport, watch = await self._start(program, talks=given is not None)
        if pipe := transport.get_pipe_transport(0):
            stdin = cast(asyncio.WriteTransport, pipe)  # of whatever event loop
            with suppress(RuntimeError):  # it has ended already: its exit status says what to make of that
                stdin.write(given or b"")
                stdin.write_eof()
        try:
            async with asyncio.timeout(self._timeout_s):
                await watch.ended
        except TimeoutError as error:
            raise Unavailable(f"{program} was killed: it had not ended after {self._timeout_s:g} s") from error
        finally:
            await _end(transport, watch)
        if watch.flooded:
            raise Unavailable(f"{program} was killed: it wrote more than {MAX_OUTPUT_BYTES} bytes")
        if status := transport.get_returncode():
            raise Unavailable(f"{program} {_ending(status)}{_first_line(watch.written[2])}")
        return bytes(watch.written[1])

    async def _start(self, program: str, *, talks: bool) -> tuple[asyncio.SubprocessTransport, _Watch]:
        starting = asyncio.get_running_loop().create_task(self._spawn(PIPE if talks else DEVNULL))
        try:
            return await asyncio.shield(starting)
        except OSError as error:
            raise Unavailable(f"{program} can't be started: {(error.strerror or 'unknown error').lower()}") from error
        except asyncio.CancelledError:  # half started: only who has it whole can end it with all its children
            with suppress(OSError):
                await _end(*await starting)
            raise

    async def _spawn(self, beside: int) -> tuple[asyncio.SubprocessTransport, _Watch]:
        return await asyncio.get_running_loop().subprocess_exec(
            _Watch, *self._argv, stdin=beside, stdout=beside, stderr=PIPE,
            cwd=self._folder, env=self._environment, start_new_session=True,
        )  # fmt: skip


def environment_of(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command may know of the daemon's environment."""
    return {name: environ[name] for name in _ENVIRONMENT if name in environ}


class _Watch(asyncio.SubprocessProtocol):
    """Follows one process. written: by descriptor; ended: it exited or wrote too much; gone: all is read."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.written = {1: bytearray(), 2: bytearray()}
        self.flooded = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.written[fd]
        if len(kept) + len(data) > MAX_OUTPUT_BYTES and not self.ended.done():
            self.flooded = True
            self.ended.set_result(None)
        kept += data[: MAX_OUTPUT_BYTES - len(kept)]

    def process_exited(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


async def _end(transport: asyncio.SubprocessTransport, watch: _Watch) -> None:
    """Kill what is left of the session, hear its last words if they matter, and give everything back."""
    # The group's number stays taken as long as anything is in the group, and numbers come round too slowly to have
    # been given to a stranger in the moment since the leader ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), signal.SIGKILL)
    if transport.get_returncode() != 0 or transport.get_pipe_transport(1):
        await asyncio.wait({watch.gone}, timeout=_LAST_WORDS_S)
    transport.close()
    await asyncio.wait({watch.gone}, timeout=_LAST_WORDS_S)


def _ending(status: int) -> str:
    return f"ended with exit status {status}" if status > 0 else f"was ended by signal {-status}"


def _first_line(errors: bytes | bytearray) -> str:
    line = errors.decode("utf-8", "replace").strip().partition("\n")[0].strip()
    return f": {escaped(line)}" if line else ""
