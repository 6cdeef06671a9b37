"""What clients tell each other: ids that somebody began to use, so that several meet at the same ones."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

AGENTS = ("ant", "bee", "cat", "dog")
CALLING = AGENTS[:2]  # of these there are clients that call tools
_RECENT = 14


class Board:
    """A file of ids and whose they are: one line each, which is appended whole."""

    def __init__(self, path: Path, recent: int = _RECENT) -> None:
        self._write = path.open("a", buffering=1)
        self._read = path.open()
        self._recent: deque[tuple[str, str]] = deque(maxlen=recent)

    def put(self, id: str, cn: str) -> None:
        self._write.write(f"{id} {cn}\n")

    def close(self) -> None:
        self._write.close()
        self._read.close()

    def pick(self, chance: random.Random) -> tuple[str, str] | None:
        """One of the newest: an id and whose it is."""
        self._recent.extend((id, cn) for id, cn in (line.split() for line in self._read))
        return chance.choice(self._recent) if self._recent else None


class Boards:
    """One for each thing that clients meet at. calls: the words of writes; requests: what waits for an operator."""

    def __init__(self, folder: Path) -> None:
        self.directives = Board(folder / "board")
        self.calls = Board(folder / "calls", 6)
        self.requests = Board(folder / "requests", 6)
        self.acts = Board(folder / "acts", 6)
        self.runs = Board(folder / "runs", 2)
        self.leases = Board(folder / "leases", 4)

    def close(self) -> None:
        for board in vars(self).values():
            board.close()
