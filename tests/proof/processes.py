"""The processes of a run: the daemon, life after life, and the clients that outlive it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.proof.forge import HAMMER, LEVER, Child, Forge

_START_S = 60.0
SERVE = "tests.proof.processes:serve"


@dataclass
class Daemon:
    """One life of the daemon. said: what it wrote to standard error; ended_at: when it was made to end."""

    child: Child
    _pipe: int
    said: bytes = b""
    ended_at: float = 0.0

    @classmethod
    def start(
        cls, forge: Forge, folder: Path, environment: Mapping[str, str] | None = None, entry: str = LEVER
    ) -> Self:
        """By `lever broker serve`, or by what that calls."""
        read, write = os.pipe()
        try:
            child = forge.start(
                entry, "broker", "serve", "lever.yaml", cwd=folder, stderr=write, environment=environment
            )
        finally:
            os.close(write)
        return cls(child, read)

    @property
    def serves(self) -> bool:
        """Has it said that both doors answer?"""
        return b"serving agents" in self.said

    def serving(self) -> bool:
        """Wait until it says so; False where it ended instead."""
        self.listen(_START_S, until=b"serving agents")
        return self.serves

    def listen(self, seconds: float, until: bytes | None = None) -> bool:
        """Let it run for so long, or until it says this; False where it ended meanwhile."""
        deadline, ready = time.monotonic() + seconds, select.poll()
        ready.register(self._pipe, select.POLLIN)
        while ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if not (part := os.read(self._pipe, 65536)):
                return False
            self.said += part
            if until and until in self.said:
                break
        return True

    def end(self, how: int = signal.SIGKILL) -> int:
        """Send it this signal, and see its end; the exit status."""
        self.ended_at = time.monotonic()
        self.child.send_signal(how)
        return self.ended()

    def ended(self) -> int:
        """Read what it says to its end; the exit status."""
        if self._pipe >= 0:
            self.listen(_START_S)
            os.close(self._pipe)
            self._pipe = -1
        return self.child.wait()


def serve(words: list[str]) -> int:
    """What `lever broker serve FILE` runs once it has read its command line, which costs a sixth of a start."""
    from broker import daemon

    return daemon.serve(Path(words[-1]))


@dataclass
class Client:
    """A process that waits for a word on its input before it begins, and says what came of it on its output."""

    child: Child
    input: int
    output: int

    @classmethod
    def start(cls, forge: Forge, words: Sequence[str], folder: Path, entry: str = HAMMER) -> Self:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        child = forge.start(entry, *words, cwd=folder, stdin=theirs_in, stdout=theirs_out, stderr=2)
        for fd in (theirs_in, theirs_out):
            os.close(fd)
        return cls(child, ours_in, ours_out)

    def first_line(self) -> str:
        """What it says before it begins."""
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self.output, 1)
            assert byte, "a client ended before it began"
            line += byte
        return line.decode().strip()

    def up(self, word: object = "up") -> None:
        os.write(self.input, f"{word}\n".encode())

    def rest(self) -> list[str]:
        """End its input, and hear the rest of what it says."""
        os.close(self.input)
        with os.fdopen(self.output) as output:
            self.input = self.output = -1
            lines = list(output)
        assert self.child.wait() == 0, "a client failed"
        return lines

    def close(self) -> None:
        """Let go, whatever became of it."""
        for fd in (self.input, self.output):
            with suppress(OSError):
                os.close(fd)
        self.input = self.output = -1
