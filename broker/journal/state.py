"""The state folder: whose it is, which instance and format it holds, and the lock that makes one broker its writer."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from broker.errors import Damaged, Fatal, Malformed
from broker.journal.disk import Disk, RealDisk, refusal, write_all
from broker.wire import names
from broker.wire.names import Instance

FORMAT = 1
JOURNAL, PAYLOADS, CA = "journal", "payloads", "ca"
FORMAT_NAME, _LOCK_NAME, _HOLDER_NAME = "format", "lock", "lock.pid"
_TEXT = re.compile(r"lever-state ([1-9][0-9]{0,8})\n(?:instance ([^\n]*)\n)?.*", re.DOTALL)


class StateFolder:
    """A state folder under this process's lock, until `close`. Made by `open` or `create` alone.

    Holds `format`, `head`, `lock`, `lock.pid`, `operator.sock`, `journal/`, `payloads/` and `ca/`.
    """

    def __init__(self, path: Path, instance: Instance, lock: FileLock) -> None:
        self.path = path
        self.instance = instance
        self._lock = lock

    @property
    def journal(self) -> Path:
        """The folder of the record segments."""
        return self.path / JOURNAL

    @property
    def payloads(self) -> Path:
        """The folder of the payload segments."""
        return self.path / PAYLOADS

    @property
    def ca(self) -> Path:
        """The folder of the certificate authority."""
        return self.path / CA

    @property
    def operator_socket(self) -> Path:
        """Where the operator door listens unless the configuration says otherwise."""
        return self.path / "operator.sock"

    @classmethod
    def open(cls, path: Path, instance: Instance) -> Self:
        """Take an existing state folder of this instance.

        Raises Fatal when there is none, it is another user's, open to others, of another instance or a newer format,
        held by another broker, or not writable.
        """
        _check_private(path)
        found = read_instance(path)
        if found != instance:
            raise Fatal(
                f"{path} is the state folder of instance {found}, and the configuration names instance {instance}",
                hint="set `instance` or `state` in the configuration so that the two belong together",
            )
        for name in (JOURNAL, PAYLOADS, CA):
            _check_private(path / name)
        return cls(path, instance, _lock(path))

    @classmethod
    def create(cls, path: Path, instance: Instance) -> Self:
        """Make a state folder where nothing is yet (or an empty folder) and take it. Raises Fatal."""
        disk = RealDisk()
        try:
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
            _check_private(path)
            if disk.names(path):
                raise Fatal(
                    f"{path} is not empty: a new state folder is made where nothing is",
                    hint=f"name another folder as `state`, or look at what is there: ls -la {path}",
                )
            lock = _lock(path)
            try:
                _furnish(path, instance, disk)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise refusal("make a state folder", path, error) from error
        return cls(path, instance, lock)

    def close(self) -> None:
        """Let go of the lock."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_instance(path: Path) -> Instance:
    """Whose state folder this is, as its file `format` says, without the lock. Raises Fatal."""
    try:
        text = (path / FORMAT_NAME).read_text("utf-8", "replace")
    except FileNotFoundError:
        raise Fatal(
            f"{path} is no state folder: it has no file named `{FORMAT_NAME}`",
            hint="check `state` in the configuration; a new instance starts with: lever init",
        ) from None
    except OSError as error:
        raise refusal(f"read `{FORMAT_NAME}`", path, error) from error
    found = _TEXT.fullmatch(text)
    if found and int(found[1]) > FORMAT:
        raise Fatal(
            f"{path} has the newer format {found[1]}; this lever knows format {FORMAT}",
            hint="run the version of lever that wrote it, or a later one",
        )
    try:
        if not found or found[0] != _text(names.instance(found[2])):
            raise Malformed(FORMAT_NAME, "wrong lines")
    except Malformed as error:
        raise Damaged(
            f"{path / FORMAT_NAME} is damaged: expected the lines `lever-state {FORMAT}` and `instance <name>`",
            hint="restore the whole state folder from one copy, never a single file",
        ) from error
    return Instance(found[2])


def _text(instance: Instance) -> str:
    return f"lever-state {FORMAT}\ninstance {instance}\n"


def _furnish(path: Path, instance: Instance, disk: Disk) -> None:
    for name in (JOURNAL, PAYLOADS, CA):
        (path / name).mkdir(mode=0o700)
    fd = disk.create(path / FORMAT_NAME)
    try:
        write_all(disk, fd, _text(instance).encode())
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.sync_dir(path)
    disk.sync_dir(path.parent)


def _check_private(path: Path) -> None:
    try:
        about = path.stat()
    except FileNotFoundError:
        raise Fatal(
            f"there is no folder {path}",
            hint="check `state` in the configuration; a new instance starts with: lever init",
        ) from None
    except OSError as error:
        raise refusal("look at the state folder", path, error) from error
    if not stat.S_ISDIR(about.st_mode):
        raise Fatal(f"{path} is not a folder", hint="check `state` in the configuration")
    if about.st_uid != os.geteuid():
        raise Fatal(
            f"{path} belongs to user id {about.st_uid}, and this process runs as user id {os.geteuid()}",
            hint=f"run the broker as the folder's owner (see: ls -ld {path})",
        )
    if about.st_mode & 0o077:
        raise Fatal(
            f"{path} is open to other users: expected mode 0700, found {stat.S_IMODE(about.st_mode):04o}",
            hint=f"chmod 700 {path}",
        )


def _lock(path: Path) -> FileLock:
    lock = FileLock(path / _LOCK_NAME, blocking=False, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        pid = _holder(path)
        raise Fatal(
            f"another broker{f' (pid {pid})' if pid else ''} holds this state folder: {path}",
            hint=f"stop that broker first: kill {pid or 'PID'}",
        ) from None
    except OSError as error:
        raise refusal("take the lock", path, error) from error
    try:
        _name_holder(path)
    except OSError as error:
        lock.release()
        raise refusal("write", path, error) from error
    return lock


def _name_holder(path: Path) -> None:
    """Say who holds the lock. Beside the lock, since who comes second would empty the lock file itself."""
    fd = os.open(path / _HOLDER_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, f"{os.getpid()}\n".encode())
    finally:
        os.close(fd)


def _holder(path: Path) -> str:
    try:
        text = (path / _HOLDER_NAME).read_text("ascii", "replace").strip()
    except OSError:
        return ""
    return text if text.isdecimal() and len(text) <= 10 else ""
