"""Processes of the installed `lever` without the half second of its start: a server forks each of them.

Such a process has an id, a user, a folder, an environment and descriptors of its own, and ends as any other does. Only
the interpreter and the imports are not its own, so what is told by argv, a wrapper or a changed library is started
for real.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

_SERVER = Path(__file__).with_name("fork_server.py")
_AT_START = ("PYTHON", "LD_", "DYLD_", "LC_", "LANG")


class Forked:
    """A forked process: as much of `subprocess.Popen` as the tests use."""

    def __init__(self, argv: list[str], reply: socket.socket) -> None:
        self.args, self.returncode = argv, None
        self._reply, self._lines = reply, reply.makefile("rb")
        self.pid = int(self._lines.readline())

    returncode: int | None

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative where a signal ended it."""
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                peeked = self._reply.recv(1, socket.MSG_PEEK)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            assert peeked, "the fork server is gone"
            self._reply.settimeout(None)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._reply.close()
        return self.returncode

    def send_signal(self, how: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, how)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def forkable(env: dict[str, str]) -> bool:
    """Whether nothing is in this environment that only a new interpreter heeds."""
    return all(env.get(name) == os.environ.get(name) for name in {*env, *os.environ} if name.startswith(_AT_START))


class ForkServer:
    """Starts `lever` processes. It starts with the first of them, and ends with the one that made it."""

    def __init__(self) -> None:
        self._control, self._theirs = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        self._theirs.close()
        self._control.close()
        if self._process:
            self._process.wait(timeout=30)

    def _begin(self) -> None:
        fd = self._theirs.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SERVER), str(fd)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[fd],
        )  # fmt: skip
        self._theirs.close()

    def start(
        self, argv: list[str], stdio: list[int], *, cwd: Path | None = None, env: dict[str, str], uid: int | None = None
    ) -> Forked:
        """argv: `lever` and its words; stdio: the descriptors to be its input, output and errors."""
        if self._process is None:
            self._begin()
        reply, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"\n"], [theirs.fileno(), *stdio])
        job = {"argv": argv, "cwd": str(cwd or Path.cwd()), "env": env, "uid": uid}
        reply.sendall(json.dumps(job).encode() + b"\n")
        return Forked(argv, reply)

    def run(
        self, argv: list[str], *, input: str = "", timeout: float = 60, **where: Any
    ) -> subprocess.CompletedProcess[str]:
        """The process until its end, as `subprocess.run` has it."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(input.encode())
            given.seek(0)
            process = self.start(argv, [given.fileno(), out.fileno(), err.fileno()], **where)
            try:
                status = process.wait(timeout)
            finally:
                process.kill()
            return subprocess.CompletedProcess(argv, status, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
