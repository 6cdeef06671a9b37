"""Private files: written as a whole or not at all, and read only when nobody else could have touched them."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from lever.agent.failures import Damaged, Unsafe

MAX_BYTES = 65536
_OTHERS = 0o077


class Disk:
    """The few writes of an identity folder, each one step that a crash can fall before or after."""

    def write(self, path: Path, content: bytes) -> None:
        """A new file, 0600, its bytes on disk when this returns. What stood there before is dropped."""
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _sync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Put source in target's place, in one step."""
        source.rename(target)

    def remove(self, path: Path) -> None:
        """The file is gone, or was not there."""
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """The folder's names are on disk when this returns."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)


def replace(disk: Disk, path: Path, content: bytes) -> None:
    """Replace a file as a whole: after a crash at any step, path holds its old content or the new one."""
    beside = path.with_name(path.name + ".new")
    disk.write(beside, content)
    disk.rename(beside, path)
    disk.sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """The folder, 0700, and its parents; one that is there already is only checked. Raises Unsafe."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """Is this a folder of ours that nobody else can enter? Raises Unsafe; FileNotFoundError when there is none."""
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise Unsafe(f"expected a folder, found another kind of file: {folder}", hint="give --identity another path")
    _check_owner(folder, found, "700")


def read_private(path: Path) -> bytes:
    """A private file's bytes. Raises Unsafe, Damaged when it is too large, FileNotFoundError when there is none."""
    try:
        # O_NONBLOCK: opening a named pipe must not wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise Unsafe(
            f"expected a regular file, found a symbolic link: {path}", hint=f"rm '{path}', then enrol anew"
        ) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Unsafe(f"expected a regular file: {path}", hint=f"rm -r '{path}', then enrol anew")
        _check_owner(path, found, "600")
        content = _read(descriptor)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise Damaged(f"{path}: more than {MAX_BYTES} bytes", hint=f"mv '{path}' '{path}.bad', then enrol anew")
    return content


def _read(descriptor: int) -> bytes:
    """Up to one byte more than is allowed."""
    content = b""
    while len(content) <= MAX_BYTES and (more := os.read(descriptor, MAX_BYTES + 1 - len(content))):
        content += more
    return content


def _check_owner(path: Path, found: os.stat_result, mode: str) -> None:
    if found.st_uid != os.geteuid():
        raise Unsafe(
            f"{path} belongs to uid {found.st_uid}, expected {os.geteuid()}", hint=f"sudo chown $(id -u) '{path}'"
        )
    if found.st_mode & _OTHERS:
        raise Unsafe(
            f"{path} has mode {stat.S_IMODE(found.st_mode):o}, expected {mode}: others may have read the key",
            hint=f"chmod {mode} '{path}'; if others could have read it, ask the operator for a new invite",
        )


def _sync(descriptor: int) -> None:
    """On macOS fsync stops at the drive's cache; F_FULLFSYNC does not, but not every file system has it."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(descriptor, full)
            return
        except OSError:
            pass
    os.fsync(descriptor)
