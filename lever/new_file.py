"""A file that is written once, for its owner alone, where nothing was before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lever.exits import CliError, Exit


@contextmanager
def new_file(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """An empty new file to write to, never through a symlink and never over another file; it is on disk at the end.

    Opened before the work that fills it, so that a path which can't be written costs nothing. Gone again if that fails.
    Raises CliError.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        what = "a symlink" if path.is_symlink() else "something"
        raise CliError(
            f"expected nothing at {path} yet, found {what} there; nothing was changed",
            hint=f"name another file, or look at what is there: ls -l {path}",
            exit=Exit.REFUSED,
        ) from error
    except OSError as error:
        raise unwritten(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise unwritten(path, error) from error
        raise


def unwritten(path: Path, error: OSError) -> CliError:
    """The system did not let it be written."""
    words = (error.strerror or str(error)).lower()
    return CliError(f"{path} can't be written: {words}", hint=f"ls -ld {path.absolute().parent}", exit=Exit.UNEXPECTED)
