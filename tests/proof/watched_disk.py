"""A FakeDisk that can let the event loop finish before each changing call, and be copied as it lies at that moment."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from broker.errors import Fatal
from tests.fakes.fake_disk import FakeDisk, Fault

_ROUNDS = 12
"""So many turns of the loop bring an answer from the writer to whoever asked, and the next step of the story along."""


class WatchedDisk(FakeDisk):
    """before_call: runs at the start of every changing call."""

    def __init__(self, folders: Iterable[Path], faults: dict[int, Fault] | None = None) -> None:
        super().__init__(folders, faults)
        self.before_call: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._expecting: list[asyncio.Future[None]] = []
        self._beside: set[int] = set()

    @property
    def struck(self) -> bool:
        """Has it refused the journal a call?"""
        refused = {at for at, fault in self.faults.items() if isinstance(fault, OSError) and at <= len(self.calls)}
        return not refused <= self._beside

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Meanwhile the calls are not the journal's: to refuse one stops nobody."""
        before = len(self.calls)
        try:
            yield
        except (OSError, Fatal):
            if not self.faults:
                raise
        finally:
            self._beside.update(range(before + 1, len(self.calls) + 1))

    @contextmanager
    def attending(self) -> Iterator[None]:
        """Meanwhile each call waits until the loop has nothing more to do: whatever is told, is told before it.

        So what many callers do at once makes the same calls, in the same order, each time.
        """
        self._loop = asyncio.get_running_loop()
        try:
            yield
        finally:
            self._loop = None

    def next_call(self) -> asyncio.Future[None]:
        """Done once a call has begun and waits for the loop."""
        future = asyncio.get_running_loop().create_future()
        self._expecting.append(future)
        return future

    def moment(self) -> WatchedDisk:
        """A copy, as it lies now; nothing is open."""
        taken = WatchedDisk(())
        taken._now, taken._synced = copy.deepcopy((self._now, self._synced))
        taken.calls, taken._beside = [*self.calls], {*self._beside}
        return taken

    def crash(self, survive: Callable[[int], int], *, names_kept: bool) -> WatchedDisk:
        """As FakeDisk does, and what a restart finds can be watched again."""
        after, found = WatchedDisk(()), super().crash(survive, names_kept=names_kept)
        after._now, after._synced = found._now, found._synced
        return after

    def digest(self) -> bytes:
        """Equal for disks that a reader can't tell apart."""
        whole = sha256()
        for folder, names in sorted(self._now.items()):
            for name, inode in sorted(names.items()):
                whole.update(f"{folder}/{name} {len(inode.data)}\n".encode() + inode.data)
        return whole.digest()

    def durable_records(self, folder: Path) -> int:
        """How many whole records a power cut would leave, counted by the lengths of their frames alone."""
        count = 0
        for name, inode in self._synced[folder].items():
            offset = frames = 0
            while name.endswith(".seg") and offset + 40 <= len(inode.synced):
                offset += 40 + int.from_bytes(inode.synced[offset : offset + 4], "big")
                frames += offset <= len(inode.synced)
            count += max(0, frames - 1)  # the header is no record
        return count

    def unsynced(self) -> int:
        """The most bytes that a file has behind its synced ones."""
        files = (inode for names in (*self._now.values(), *self._synced.values()) for inode in names.values())
        return max((len(inode.data) - len(inode.synced) for inode in files), default=0)

    def _changing(self, call: str) -> Fault | None:
        if loop := self._loop:
            settled = threading.Event()
            loop.call_soon_threadsafe(self._settle, loop, settled, _ROUNDS)
            settled.wait()
        self.before_call()
        return super()._changing(call)

    def _settle(self, loop: asyncio.AbstractEventLoop, settled: threading.Event, rounds: int) -> None:
        while self._expecting:
            expecting = self._expecting.pop()
            if not expecting.done():
                expecting.set_result(None)
        if rounds:
            loop.call_soon(self._settle, loop, settled, rounds - 1)
        else:
            settled.set()
