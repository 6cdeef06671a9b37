"""Somebody else's file, read and replaced as a whole: never half-written, and never outside of where it belongs."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lever.exits import CliError, Exit
from lever.new_file import unwritten


@dataclass(frozen=True, slots=True)
class Edited:
    """A file as it was found. target: what is replaced, which a symlink at path stays pointing at; old: None if new."""

    path: Path
    target: Path
    old: bytes | None

    @classmethod
    def open(cls, path: Path, root: Path) -> Edited:
        """The file at path, or none yet. A symlink out of root is refused: a project may come from anybody."""
        try:
            target = path.resolve()
            inside = target.is_relative_to(root.resolve())
        except (OSError, RuntimeError) as error:
            raise _refused(path, "a path that leads somewhere", f"a loop of symlinks: {error}") from error
        if not inside:
            raise _refused(path, f"a path that stays in {root}", f"a symlink that leaves it, to {target}")
        return cls(path, target, _read(target))

    def replace(self, content: bytes, new_mode: int) -> None:
        """Put content in its place in one step, with its mode and owner. new_mode: for a file that is new."""
        beside = self.target.with_name(f".{self.target.name}.{secrets.token_hex(8)}")
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self._write(beside, content, new_mode)
            # The harness writes some of these files itself, at any time.
            if _read(self.target) != self.old:
                again = "look at it, then run the same command again"
                raise _refused(self.path, "the file as it was read", "that somebody wrote it meanwhile", again)
            beside.replace(self.target)
        except BaseException as error:
            with suppress(OSError):
                beside.unlink()
            if isinstance(error, OSError):
                raise unwritten(self.path, error) from error
            raise

    def _write(self, beside: Path, content: bytes, new_mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(beside, flags, new_mode if self.old is None else 0o600), "wb") as file:
            if self.old is not None:
                found = self.target.stat()
                if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    with suppress(PermissionError):
                        os.fchown(file.fileno(), found.st_uid, found.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _read(path: Path) -> bytes | None:
    try:
        # O_NONBLOCK: opening a named pipe must not wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CliError(
            f"{path} can't be read: {(error.strerror or str(error)).lower()}", hint=f"ls -ld {path}", exit=Exit.REFUSED
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _refused(path, "a regular file", "something else")
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _refused(path: Path, expected: str, found: str, hint: str = "") -> CliError:
    text = f"{path}: expected {expected}, found {found}; nothing was changed"
    return CliError(text, hint=hint or f"ls -ld {path}", exit=Exit.REFUSED)
