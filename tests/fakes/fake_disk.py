"""A Disk in memory that forgets what was not synced. tests/journal/test_disk.py holds both disks to one contract."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path


class PowerCutError(Exception):
    """The machine is gone in the middle of a call. Not an OSError: no program ever sees it."""


def at_most(kept: int) -> Callable[[int], int]:
    """For `crash`: so many of the unsynced bytes of each file are left, or all if there are fewer."""
    return lambda unsynced: min(unsynced, kept)


@dataclass
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def after_crash(self, survive: Callable[[int], int]) -> _Inode:
        """The synced bytes, and as many of those written behind them as happened to reach the medium."""
        if not self.data.startswith(self.synced):  # cut, and the cut not synced
            kept = bytes(self.synced)
        else:
            kept = bytes(self.data[: len(self.synced) + survive(len(self.data) - len(self.synced))])
        return _Inode(bytearray(kept), kept)


@dataclass(frozen=True)
class Short:
    """A write that takes only so many bytes."""

    taken: int


Fault = OSError | PowerCutError | Short


class FakeDisk:
    """Keeps the Disk protocol. faults: by the number of a changing call (from 1), what happens at it instead.

    calls: the changing calls so far, by name. at_sync: runs at the start of every sync, so that a test can hold one.
    """

    def __init__(self, folders: Iterable[Path], faults: dict[int, Fault] | None = None) -> None:
        self._now: dict[Path, dict[str, _Inode]] = {folder: {} for folder in folders}
        self._synced: dict[Path, dict[str, _Inode]] = {folder: {} for folder in folders}
        self._open: dict[int, tuple[_Inode, bool]] = {}
        self._next_fd = 1000
        self.faults = faults or {}
        self.calls: list[str] = []
        self.at_sync: Callable[[], None] = lambda: None

    def crash(self, survive: Callable[[int], int], *, names_kept: bool) -> FakeDisk:
        """What a restart finds. survive: of so many unsynced bytes, how many are left; names_kept: such names too."""
        after = FakeDisk(self._now)
        for folder, names in (self._now if names_kept else self._synced).items():
            after._now[folder] = {name: inode.after_crash(survive) for name, inode in names.items()}
            after._synced[folder] = dict(after._now[folder])
        return after

    def content(self, path: Path) -> bytes:
        """What a reader sees now."""
        return bytes(self._inode(path).data)

    def open_files(self) -> int:
        """How many descriptors were not closed."""
        return len(self._open)

    def hold_syncs(self) -> Hold:
        """From now on each sync waits until the test lets it go."""
        hold = Hold()
        self.at_sync = hold.wait
        return hold

    # The Disk protocol.

    def create(self, path: Path) -> int:
        self._changing("create")
        names = self._names(path.parent)
        if path.name in names:
            raise _error(errno.EEXIST, path)
        names[path.name] = _Inode()
        return self._descriptor(path, writable=True)

    def append(self, path: Path) -> int:
        return self._descriptor(path, writable=True)

    def read(self, path: Path) -> int:
        return self._descriptor(path, writable=False)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        fault = self._changing("write")
        inode = self._held(fd, writable=True)
        taken = len(data)
        if isinstance(fault, Short):
            taken = min(taken, fault.taken)
        elif fault is not None:
            taken //= 2  # a refused or interrupted write may leave a part behind
        inode.data += data[:taken]
        if isinstance(fault, Exception):
            raise fault
        return taken

    def read_at(self, fd: int, offset: int, size_bytes: int) -> bytes:
        return bytes(self._held(fd, writable=False).data[offset : offset + size_bytes])

    def size(self, path: Path) -> int:
        return len(self._inode(path).data)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._changing("truncate")
        inode = self._held(fd, writable=True)
        del inode.data[size_bytes:]
        inode.data += bytes(size_bytes - len(inode.data))

    def sync(self, fd: int) -> None:
        self.at_sync()
        self._changing("sync")
        inode = self._held(fd, writable=False)
        inode.synced = bytes(inode.data)

    def close(self, fd: int) -> None:
        self._held(fd, writable=False)
        del self._open[fd]

    def names(self, folder: Path) -> list[str]:
        return sorted(self._names(folder))

    def rename(self, old: Path, new: Path) -> None:
        self._changing("rename")
        inode = self._inode(old)
        del self._names(old.parent)[old.name]
        self._names(new.parent)[new.name] = inode

    def remove(self, path: Path) -> None:
        self._changing("remove")
        self._inode(path)
        del self._names(path.parent)[path.name]

    def sync_dir(self, folder: Path) -> None:
        self._changing("sync_dir")
        self._synced[folder] = dict(self._names(folder))

    def _changing(self, call: str) -> Fault | None:
        self.calls.append(call)
        fault = self.faults.get(len(self.calls))
        if isinstance(fault, Exception) and call != "write":
            raise fault
        return fault

    def _names(self, folder: Path) -> dict[str, _Inode]:
        if folder not in self._now:
            raise _error(errno.ENOENT, folder)
        return self._now[folder]

    def _inode(self, path: Path) -> _Inode:
        names = self._names(path.parent)
        if path.name not in names:
            raise _error(errno.ENOENT, path)
        return names[path.name]

    def _descriptor(self, path: Path, *, writable: bool) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = (self._inode(path), writable)
        return self._next_fd

    def _held(self, fd: int, *, writable: bool) -> _Inode:
        inode, may_write = self._open.get(fd, (None, False))
        if inode is None or (writable and not may_write):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return inode


class Hold:
    """Stops the writer's thread inside a sync until `release`."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def wait(self) -> None:
        """Called by the disk."""
        self._reached.set()
        self._released.wait()

    def until_reached(self) -> None:
        """Return once a sync is being held."""
        assert self._reached.wait(60), "nothing was ever synced"

    def release(self) -> None:
        """Let this sync and all later ones through."""
        self._released.set()


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
