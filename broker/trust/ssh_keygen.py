"""`ssh-keygen -Y verify` as a process: cheap to start, few at a time, ended at a limit.

Why it is run in just this way: docs/decisions/0006-verifying-processes.md.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from broker.errors import Unavailable
from broker.trust.unlinked import unlinked
from broker.wire.names import Instant
from broker.wire.times import SECOND, show

_MAX_OUTPUT_BYTES = 4096


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

    def __init__(self, executable: str = "ssh-keygen", *, parallel: int = 4, timeout_s: float = 5.0) -> None:
        self._executable = executable
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(parallel, thread_name_prefix="ssh-keygen")
        # The time zone goes along because dates in allowed_signers without a Z are read in it, here and there.
        known = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        self._environment = {"PATH": os.defpath, **known, "LANG": "C"}

    def find(self) -> None:
        """Raises Unavailable when there is no such program."""
        if shutil.which(self._executable, path=self._environment["PATH"]) is None:
            raise Unavailable(f"{self._executable} is not on the PATH ({self._environment['PATH']})")

    async def verify(self, question: Question) -> Outcome:
        """Run one process to its end. Raises Unavailable when it can't be run or doesn't end in time."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, question)

    async def close(self) -> None:
        """Wait for the processes that run; each has its limit. Those not yet started never are."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    def _run(self, question: Question) -> Outcome:
        contents = (question.allowed, question.signature, question.raw, b"")
        with ExitStack() as opened:
            allowed, signature, raw, errors = (opened.enter_context(unlinked(it)) for it in contents)
            process = opened.enter_context(self._start(question, allowed, signature, raw, errors))
            deadline = time.monotonic() + self._timeout_s
            try:
                said = _read_to_end(process, deadline)
                # The kernel closes a process's files a moment before it can be waited for.
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except (TimeoutError, subprocess.TimeoutExpired) as error:
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
        self, question: Question, allowed: int, signature: int, raw: int, errors: int
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._argv(question, allowed, signature),
                bufsize=0,
                stdin=raw,
                stdout=subprocess.PIPE,
                # A file and not a second pipe: nobody has to empty it while the process runs.
                stderr=errors,
                pass_fds=(allowed, signature),
                env=self._environment,
                cwd="/",
                process_group=0,
            )
        except OSError as error:
            raise Unavailable(f"{self._executable} can't be run: {error.strerror}") from error


def _read_to_end(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """What the process says on standard output until it closes it, which is when it ends. Raises TimeoutError."""
    assert process.stdout is not None
    readable = select.poll()
    readable.register(process.stdout, select.POLLIN)
    said = bytearray()
    while readable.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = process.stdout.read(_MAX_OUTPUT_BYTES)
        if not part:
            return bytes(said)
        said.extend(part[: _MAX_OUTPUT_BYTES - len(said)])
    raise TimeoutError


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of a process that did not end stays behind: neither it, nor what it started, nor a zombie."""
    # While it has not been waited for, its number can't have become another's.
    if process.returncode is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
