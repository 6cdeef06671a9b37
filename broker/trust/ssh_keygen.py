"""`ssh-keygen -Y verify` as a process: cheap to start, few at a time, ended at a limit.

Why it is run in just this way: docs/decisions/0006-verifying-processes.md.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO

from broker.errors import Unavailable
from broker.trust.unlinked import unlinked
from broker.wire.names import Instant
from broker.wire.times import SECOND, show

_MAX_OUTPUT_BYTES = 4096
_AFTER_LAST_WORD_S = 0.001


@dataclass(frozen=True, slots=True)
class Question:
    """Do these bytes carry a signature of this principal, under this allowed_signers content, at this time?"""

    allowed: bytes
    principal: str
    namespace: str
    raw: bytes
    signature: bytes
    now: Instant


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the process ended. status: its exit status, or minus the signal that ended it. Outputs are cut at 4 KiB."""

    status: int
    stdout: bytes
    stderr: bytes


class SshKeygen:
    """The installed ssh-keygen.

    executable: a name on PATH or a path; parallel: processes at a time; timeout_s: for one of them.
    """

    def __init__(self, executable: str = "ssh-keygen", *, parallel: int = 8, timeout_s: float = 5.0) -> None:
        self._executable = executable
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(parallel)
        self._starting = asyncio.Lock()
        # The time zone goes along because dates in allowed_signers without a Z are read in it, here and there.
        known = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        self._environment = {"PATH": os.defpath, **known, "LANG": "C"}

    def find(self) -> None:
        """Raises Unavailable when there is no such program."""
        if shutil.which(self._executable, path=self._environment["PATH"]) is None:
            raise Unavailable(f"{self._executable} is not on the PATH ({self._environment['PATH']})")

    async def verify(self, question: Question) -> Outcome:
        """Run one process to its end. Raises Unavailable when it can't be run or doesn't end in time."""
        async with self._slots:
            with ExitStack() as opened:
                contents = (question.allowed, question.signature, question.raw, b"")
                allowed, signature, raw, errors = (opened.enter_context(unlinked(it)) for it in contents)
                reading, writing = opened.enter_context(_pipe())
                argv = self._argv(question, allowed, signature)
                async with self._starting:
                    # Starting holds up the event loop: between two starts all others get their turn.
                    await asyncio.sleep(0)
                    process = self._start(argv, (allowed, signature), raw, writing.fileno(), errors)
                writing.close()
                try:
                    async with asyncio.timeout(self._timeout_s):
                        said = await _read_to_end(reading)
                        status = await _ended(process)
                except TimeoutError as error:
                    raise Unavailable(f"{self._executable} did not end within {self._timeout_s} s") from error
                finally:
                    _end(process)
                return Outcome(status, said, os.pread(errors, _MAX_OUTPUT_BYTES, 0))

    def _argv(self, question: Question, allowed: int, signature: int) -> list[str]:
        # ssh-keygen wants the time as YYYYMMDDHHMMSSZ, whole seconds; the Z needs OpenSSH 9.1.
        whole = Instant(question.now // SECOND * SECOND)
        at = show(whole).translate({ord(sign): None for sign in "-:T"})
        return [
            self._executable,
            *("-Y", "verify"),
            *("-f", f"/dev/fd/{allowed}"),
            *("-I", question.principal),
            *("-n", question.namespace),
            f"-Overify-time={at}",
            *("-s", f"/dev/fd/{signature}"),
        ]

    def _start(
        self, argv: list[str], shared: tuple[int, ...], stdin: int, stdout: int, stderr: int
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=shared,
                env=self._environment,
                cwd="/",
                process_group=0,
            )
        except OSError as error:
            raise Unavailable(f"{self._executable} can't be run: {error.strerror}") from error


@contextmanager
def _pipe() -> Iterator[tuple[int, FileIO]]:
    """A pipe: the reading end, which never blocks, and the writing end, to be closed once the process has it."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with FileIO(reading, "rb"), FileIO(writing, "wb") as sink:
        yield reading, sink


async def _read_to_end(descriptor: int) -> bytes:
    """What the process says on standard output until it closes it, which is when it ends."""
    loop = asyncio.get_running_loop()
    closed: asyncio.Future[None] = loop.create_future()
    said = bytearray()

    def ready() -> None:
        part = os.read(descriptor, _MAX_OUTPUT_BYTES)
        said.extend(part[: _MAX_OUTPUT_BYTES - len(said)])
        if not part and not closed.done():
            closed.set_result(None)

    loop.add_reader(descriptor, ready)
    try:
        await closed
    finally:
        loop.remove_reader(descriptor)
    return bytes(said)


async def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit status: the kernel closes a process's files a moment before it can be waited for."""
    while (status := process.poll()) is None:  # noqa: ASYNC110 - a moment, and nothing sets an event for it
        await asyncio.sleep(_AFTER_LAST_WORD_S)
    return status


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of the process stays behind: neither it, nor what it started, nor a zombie."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        # Blocks for the microseconds that a killed process takes to go.
        process.wait()
