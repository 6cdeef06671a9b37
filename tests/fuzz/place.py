"""Folders for the targets that read files: made once for each, since making one costs more than most parsers."""

from __future__ import annotations

import atexit
import os
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp


@cache
def folder(of: str) -> Path:
    """The private folder of one target, gone when the process ends."""
    made = Path(mkdtemp(prefix="lever-fuzz-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def put(path: Path, raw: bytes) -> None:
    """A file with these bytes: a new one, since some file systems sync a file that is emptied and written again."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(raw)
