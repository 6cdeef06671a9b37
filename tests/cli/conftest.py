"""The installed `lever` as a process of its own: with no terminal, or with one of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from lever.cli import main
from tests.forked import Forked, ForkServer, forkable
from tests.rig import LEVER, Rig, make_key

_FOREIGN = ("LEVER_", "SSH_", "DISPLAY", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "_LEVER")
_SIZE = struct.pack("HHHH", 24, 80, 0, 0)
_PATIENCE_S = 60
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Done:
    """How a command without a terminal ended."""

    status: int
    stdout: str
    stderr: str


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
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        return {**kept, "TERM": "xterm", "HOME": str(self.folder), **(env or {})}

    def __call__(
        self, *words: str | Path, env: dict[str, str] | None = None, input: str = "", cwd: Path | None = None
    ) -> Done:
        """The command inside this process: for what needs no terminal and nothing of another process."""
        foreign: dict[str, str | None] = {name: None for name in os.environ if name.startswith(_FOREIGN)}
        with chdir(cwd or self.folder):
            done = CliRunner().invoke(
                main, [str(word) for word in words], input, {**foreign, **self.environment(env)}, prog_name="lever"
            )
        return Done(done.exit_code, done.stdout, done.stderr)

    def process(self, *words: str | Path, env: dict[str, str] | None = None, input: str = "") -> Done:
        """The installed command as a process of a session of its own, which has no terminal."""
        done = subprocess.run(
            [LEVER, *map(str, words)], cwd=self.folder, env=self.environment(env), input=input,
            capture_output=True, text=True, timeout=_PATIENCE_S, start_new_session=True,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def forked(self, *words: str | Path, env: dict[str, str] | None = None) -> Done:
        """A process as well, but for the interpreter and the imports, which it has from the fork server."""
        environment = self.environment(env)
        if not (Rig.server and forkable(environment)):
            return self.process(*words, env=env)
        done = Rig.server.run([LEVER, *map(str, words)], cwd=self.folder, env=environment)
        return Done(done.returncode, done.stdout, done.stderr)

    def on_terminal(
        self,
        *words: str | Path,
        env: dict[str, str] | None = None,
        answers: dict[str, str] | None = None,
        redirect: str = "",
    ) -> Ended:
        """On a terminal of 80 columns. answers: what to type when a text appears there; redirect: as in a shell."""
        argv, environment = [LEVER, *map(str, words)], self.environment(env)
        if redirect:
            argv = ["/bin/sh", "-c", f'exec "$0" "$@" {redirect}', *argv]
        server = None if redirect or not forkable(environment) else Rig.server
        waiting = dict(answers or {})
        screen = b""
        with _on_terminal(argv, self.folder, environment, server) as (process, master):
            while part := _read(master):
                screen += part
                for prompt in [text for text in waiting if text.encode() in screen]:
                    os.write(master, waiting.pop(prompt).encode() + b"\n")
            status = process.wait(timeout=_PATIENCE_S)
        return Ended(status, screen.decode().replace("\r\n", "\n"))


@contextmanager
def _on_terminal(
    argv: list[str], folder: Path, environment: dict[str, str], server: ForkServer | None
) -> Iterator[tuple[subprocess.Popen[bytes] | Forked, int]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, _SIZE)
    process: subprocess.Popen[bytes] | Forked
    try:
        if server:
            process = server.start(argv, [slave] * 3, cwd=folder, env=environment, terminal=True)
        else:
            process = subprocess.Popen(
                [sys.executable, "-c", _TAKE_TERMINAL, *argv],
                cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            )  # fmt: skip
    finally:
        os.close(slave)
    try:
        yield process, master
    finally:
        process.kill()
        process.wait()
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


@pytest.fixture(scope="session")
def new_instance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `lever init --make-keys` makes: to be copied, not to be changed."""
    folder = tmp_path_factory.mktemp("new")
    done = Cli(folder).process("init", "demo", "--name", "demo", "--make-keys")
    assert done.status == 0, done.stderr
    return folder / "demo"


@pytest.fixture
def instance(cli: Cli, new_instance: Path) -> Path:
    """An instance `demo` in a folder of that name, with two keys."""
    return shutil.copytree(new_instance, cli.folder / "demo")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key pair without a passphrase."""
    return make_key(tmp_path / "key")
