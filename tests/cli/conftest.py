"""The installed `lever` as a process of its own: with no terminal, or with one of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig import LEVER, make_key

_SIZE = struct.pack("HHHH", 24, 80, 0, 0)
_PATIENCE_S = 60
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Ended:
    """How a process on a terminal ended. screen: everything it wrote there."""

    status: int
    screen: str


@dataclass(frozen=True)
class Cli:
    """Runs `lever` in a folder, in an environment without anything of the person who runs the tests."""

    folder: Path

    def environment(self, env: dict[str, str] | None = None) -> dict[str, str]:
        foreign = ("LEVER_", "SSH_", "DISPLAY", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return {**kept, "TERM": "xterm", "HOME": str(self.folder), **(env or {})}

    def __call__(
        self, *words: str | Path, env: dict[str, str] | None = None, input: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """No terminal anywhere: a session of its own, pipes on all three."""
        return subprocess.run(
            [LEVER, *map(str, words)], cwd=cwd or self.folder, env=self.environment(env), input=input,
            capture_output=True, text=True, timeout=_PATIENCE_S, start_new_session=True,
        )  # fmt: skip

    def on_terminal(
        self, *words: str | Path, env: dict[str, str] | None = None, answers: dict[str, str] | None = None
    ) -> Ended:
        """On a terminal of 80 columns. answers: what to type when a text appears there."""
        waiting = dict(answers or {})
        screen = b""
        with _on_terminal([LEVER, *map(str, words)], self.folder, self.environment(env)) as (process, master):
            while part := _read(master):
                screen += part
                for prompt in [text for text in waiting if text.encode() in screen]:
                    os.write(master, waiting.pop(prompt).encode() + b"\n")
            status = process.wait(timeout=_PATIENCE_S)
        return Ended(status, screen.decode().replace("\r\n", "\n"))


@contextmanager
def _on_terminal(
    argv: list[str], folder: Path, environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, _SIZE)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *argv],
            cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(slave)
    try:
        with process:
            yield process, master
    finally:
        process.kill()
        os.close(master)


def _read(master: int) -> bytes:
    ready, _, _ = select.select([master], [], [], _PATIENCE_S)
    assert ready, "the process on the terminal neither wrote nor ended"
    try:
        return os.read(master, 65536)
    except OSError:  # the other side was closed
        return b""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """`lever` in an empty folder."""
    return Cli(tmp_path)


@pytest.fixture
def instance(cli: Cli) -> Path:
    """A new instance `demo` in a folder of that name, with two keys."""
    done = cli("init", "demo", "--name", "demo", "--make-keys")
    assert done.returncode == 0, done.stderr
    return cli.folder / "demo"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key pair without a passphrase."""
    return make_key(tmp_path / "key")
