"""Processes that are forked from one which has imported everything: `lever` starts in 60 ms instead of a second.

What runs is `lever` itself with its arguments, in a process of its own, killable like any other. Only the imports are
shared. The server is a process beside the tests', because it must have one thread when it forks.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

LEVER = "lever.cli:main"
HAMMER = "tests.proof.hammer:main"
_IMPORTED = (
    "lever.cli",
    "lever.instance",
    "lever.commands.init",
    "lever.commands.broker",
    "lever.commands.journal",
    "broker.daemon",
    "broker.offline",
    "broker.journal.create",
    "broker.journal.inspect",
    "tests.proof.hammer",
    "tests.proof.processes",
    "broker.effects.tool_servers.pool",
    *("anyio._backends._asyncio", "cryptography.hazmat.backends.openssl.backend", "encodings.idna"),
    *("encodings.utf_16_be", "uvicorn.lifespan.off"),  # what a daemon would import late, each life of it anew
    "tests.proof.together",
)
_ROOT = Path(__file__).resolve().parents[2]
_MAX_BYTES = 65536


@dataclass
class Child:
    """A process of the forge. status: how it ended, as subprocess says it; None while it is not known."""

    forge: Forge
    pid: int
    status: int | None = None

    def send_signal(self, how: int) -> None:
        """The forge sends it, and only before it has waited for the process: the number can't be another's."""
        self.forge.tell({"signal": int(how), "pid": self.pid})

    def wait(self) -> int:
        """Its exit status, or minus the signal that ended it."""
        while self.status is None:
            self.forge.hear()
        return self.status


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    status: int
    stdout: str
    stderr: str


class Forge:
    """The server's other end; belongs to one thread. environment: of the server, and so of all that it forks."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._children: dict[int, Child] = {}
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.settimeout(120)
        with theirs:
            argv = [sys.executable, "-m", "tests.proof.forge", str(theirs.fileno())]
            self._server = subprocess.Popen(
                argv, cwd=_ROOT, env={**os.environ, **(environment or {})}, pass_fds=[theirs.fileno()]
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """The server ends, and kills what still runs."""
        self._line.close()
        self._server.wait(timeout=60)

    def tell(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        socket.send_fds(self._line, [json.dumps(message).encode()], fds or [])

    def hear(self) -> dict[str, Any]:
        """The next answer: a process was started, or one has ended."""
        raw = self._line.recv(_MAX_BYTES)
        assert raw, "the forge ended"
        answer: dict[str, Any] = json.loads(raw)
        if "status" in answer:
            self._children.pop(answer["pid"]).status = answer["status"]
        return answer

    def start(
        self,
        entry: str,
        *words: str,
        cwd: Path,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Run `entry` (module:function of a list of words). Descriptors that are not given are /dev/null."""
        with Path(os.devnull).open("r+b") as nothing:
            fds = [nothing.fileno() if fd is None else fd for fd in (stdin, stdout, stderr)]
            self.tell({"entry": entry, "words": words, "cwd": str(cwd), "environment": dict(environment or {})}, fds)
        while "status" in (answer := self.hear()):
            pass
        child = self._children[answer["pid"]] = Child(self, answer["pid"])
        return child

    def run(self, *words: str, cwd: Path, environment: Mapping[str, str] | None = None) -> Ran:
        """`lever` with these words, to its end."""
        with (cwd / "forge.out").open("w+b") as out, (cwd / "forge.err").open("w+b") as err:
            child = self.start(
                LEVER, *words, cwd=cwd, stdout=out.fileno(), stderr=err.fileno(), environment=environment
            )
            status = child.wait()
            out.seek(0), err.seek(0)
            return Ran(status, out.read().decode(), err.read().decode())


# --- in the server ------------------------------------------------------------------------------------------------


def _serve(line: socket.socket) -> None:
    running: dict[int, int] = {}  # pidfd: pid
    while True:
        ready = select.poll()
        for fd in (line.fileno(), *running):
            ready.register(fd, select.POLLIN)
        for fd, _ in ready.poll():
            if fd in running:
                _ended(line, fd, running.pop(fd))
            elif not _asked(line, running):
                return _end_all(running)


def _asked(line: socket.socket, running: dict[int, int]) -> bool:
    raw, fds, _, _ = socket.recv_fds(line, _MAX_BYTES, 3)
    if not raw:
        return False
    asked = json.loads(raw)
    if "signal" in asked:
        if asked["pid"] in running.values():
            os.kill(asked["pid"], asked["signal"])
        return True
    if (pid := os.fork()) == 0:
        line.close()
        _become(asked, fds)
    for fd in fds:
        os.close(fd)
    running[os.pidfd_open(pid)] = pid
    line.send(json.dumps({"pid": pid}).encode())
    return True


def _become(asked: dict[str, Any], fds: list[int]) -> NoReturn:
    status = 70
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        os.closerange(3, 256)
        os.chdir(asked["cwd"])
        os.environ.update(asked["environment"])
        module, function = asked["entry"].split(":")
        status = getattr(importlib.import_module(module), function)(asked["words"]) or 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for file in (sys.stdout, sys.stderr):
            file.flush()
        os._exit(status)


def _ended(line: socket.socket, fd: int, pid: int) -> None:
    os.close(fd)
    _, status = os.waitpid(pid, 0)
    line.send(json.dumps({"pid": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


def _end_all(running: dict[int, int]) -> None:
    for pid in running.values():
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def main() -> None:
    """The server: its end of the line is the descriptor that it was given."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
