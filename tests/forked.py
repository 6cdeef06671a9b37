"""Processes of the installed `lever` without the half second of its start: a server forks each of them.

Such a process has an id, a user, a folder, an environment and descriptors of its own, and ends as any other does. Only
the interpreter and the imports are not its own, so what is told by argv, a wrapper or a changed library is started
for real.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tests.asking import ask

LISTENS_AT = "LEVER_TESTS_FORK_SERVER"
_SERVER, _ASKING = (Path(__file__).with_name(name) for name in ("fork_server.py", "asking.py"))
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


def forkable(env: dict[str, str], under: Mapping[str, str] = os.environ) -> bool:
    """Whether nothing is in this environment that only a new interpreter heeds. under: the fork server's own."""
    return all(env.get(name) == under.get(name) for name in {*env, *under} if name.startswith(_AT_START))


class ForkServer:
    """Starts `lever` processes. It starts with the first of them, and ends with the one that made it.

    Where the environment names one that listens already, it is that one, and somebody else's to end.
    loaded: what is in the environment of a server whose processes are under a library of the tests.
    """

    def __init__(self, loaded: Mapping[str, str] | None = None) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="fork-")
        self.environment = {**os.environ, **(loaded or {})}
        self._path = "" if loaded else os.environ.get(LISTENS_AT, "")

    def close(self) -> None:
        self._theirs.close()
        self._ours.close()
        if self._process:
            self._process.wait(timeout=30)
        self._folder.cleanup()

    def _begin(self) -> None:
        self._path = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._path)
            listener.listen(128)
            fds = [self._theirs.fileno(), listener.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SERVER), *map(str, fds)],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=fds,
            )  # fmt: skip
        self._theirs.close()

    @property
    def path(self) -> str:
        """Where it listens."""
        if not self._path:
            self._begin()
        return self._path

    def start(
        self, argv: list[str], stdio: list[int], *, cwd: Path | None = None, env: dict[str, str], **how: Any
    ) -> Forked:
        """argv: `lever` and its words; stdio: the descriptors to be its input, output and errors."""
        return Forked(argv, ask(self.path, argv, stdio, cwd=str(cwd or Path.cwd()), env=env, **how))

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

    def argv(self, *words: str) -> list[str]:
        """The same process as a program to be started by its name."""
        return [sys.executable, "-IS", str(_ASKING), self.path, *words]


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
