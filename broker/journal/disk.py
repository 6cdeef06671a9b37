"""The few calls of the operating system that the journal rests on, behind one small Protocol."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Protocol

from broker.errors import Fatal

if sys.platform == "darwin":
    import fcntl


class Disk(Protocol):
    """What the journal asks of a disk. Every method raises OSError when the disk says no.

    Files are named by their path and held open by a descriptor. Nothing but `sync` and `sync_dir` promises that
    something outlives a power cut: `sync` the bytes and the size of a file, `sync_dir` the names in a folder.
    """

    def create(self, path: Path) -> int:
        """A new empty file, readable and writable by its owner alone. FileExistsError if the name is taken."""

    def append(self, path: Path) -> int:
        """An existing file, for writing behind its end."""

    def read(self, path: Path) -> int:
        """An existing file, for reading."""

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write behind the end; how many bytes were taken, perhaps fewer than given."""

    def read_at(self, fd: int, offset: int, size_bytes: int) -> bytes:
        """Up to so many bytes from there; empty at the end of the file."""

    def size(self, path: Path) -> int:
        """How many bytes the file has."""

    def truncate(self, fd: int, size_bytes: int) -> None:
        """Cut the file to this size."""

    def sync(self, fd: int) -> None:
        """Return once the file's bytes and size are on the medium."""

    def close(self, fd: int) -> None:
        """Let go of the descriptor."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in the same folder, in one step."""

    def remove(self, path: Path) -> None:
        """Take a name away."""

    def sync_dir(self, folder: Path) -> None:
        """Return once the folder's names are on the medium."""


class RealDisk:
    """The Disk that is one."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o600)

    def append(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)

    def read(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def read_at(self, fd: int, offset: int, size_bytes: int) -> bytes:
        return os.pread(fd, size_bytes, offset)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def sync(self, fd: int) -> None:
        # Appending changes the size, so fdatasync writes that too; it spares the times alone.
        # On macOS only F_FULLFSYNC goes past the drive's own cache.
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def names(self, folder: Path) -> list[str]:
        return sorted(os.listdir(folder))

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_dir(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if sys.platform == "darwin":
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            else:
                os.fsync(fd)
        finally:
            os.close(fd)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """All of it, however few bytes each call takes. Raises OSError."""
    taken = disk.write(fd, data)
    while taken < len(data):
        more = disk.write(fd, memoryview(data)[taken:])
        if more == 0:
            raise OSError(errno.EIO, "the disk takes no more bytes and names no error")
        taken += more


def refusal(doing: str, where: Path, error: OSError) -> Fatal:
    """The Fatal for a failed call: what was tried, where, the system's own words, and what helps."""
    words = error.strerror or str(error)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            hint = f"free space on the file system (see: df -h {where}), then start the broker again"
        case errno.EROFS:
            hint = f"the file system is mounted read-only (see: findmnt -T {where}); make it writable, then start again"
        case errno.EACCES | errno.EPERM:
            hint = f"the folder and all in it must belong to the broker's user (see: ls -la {where})"
        case errno.ENOENT | errno.ENOTDIR:
            hint = "check the path, and `state` in the configuration"
        case errno.EMFILE | errno.ENFILE:
            hint = "raise the limit of open files (see: ulimit -n), then start again"
        case _:
            hint = "look for disk errors in the system's log (see: dmesg), then start the broker again"
    return Fatal(f"cannot {doing} in {where}: {words}", hint=hint)
