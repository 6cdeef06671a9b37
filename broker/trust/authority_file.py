"""The certificate authority on disk: one file `authority.pem` with key and certificate, so that they can't disagree."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from broker.errors import Fatal

NAME = "authority.pem"
_MAX_BYTES = 65536


def write_new(folder: Path, pem: bytes) -> None:
    """Write the file, 0600, as a whole or not at all, never over another one. Raises Fatal."""
    path, draft = folder / NAME, folder / f".{NAME}.new"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # What a crash left of an earlier attempt is nobody's authority yet.
        draft.unlink(missing_ok=True)
        _write(draft, pem)
        # A link fails when the name is taken, a rename would replace it.
        os.link(draft, path)
        draft.unlink()
        _sync_folder(folder)
    except FileExistsError as error:
        raise Fatal(f"{path} already exists", hint="a new instance needs an empty state folder") from error
    except OSError as error:
        raise Fatal(f"{path} can't be written: {error.strerror}") from error


def read(folder: Path) -> bytes:
    """The file's content, if it is ours alone to read. Raises Fatal."""
    path = folder / NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check(os.fstat(descriptor), path)
            return os.read(descriptor, _MAX_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        hint = "lever init makes a new instance; restore the state folder as a whole if it was lost"
        raise Fatal(f"{path} can't be read: {error.strerror}", hint=hint) from error


def _check(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Fatal(f"{path} is not a regular file")
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Fatal(
            f"{path} holds a private key and is not ours alone "
            f"(uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o})",
            hint=f"chown {os.geteuid()} {path} && chmod 0600 {path}",
        )


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
