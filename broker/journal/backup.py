"""A copy of a state folder, made beside the broker that writes it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from broker.errors import Fatal
from broker.journal import head, segments, snapshot
from broker.journal.disk import RealDisk, refusal
from broker.journal.state import CA, FORMAT_NAME, JOURNAL, PAYLOADS, read_instance

_WHOLE = (FORMAT_NAME, head.NAME, snapshot.NAME)


def copy(path: Path, to: Path) -> None:
    """Copy the state folder `path` to a new folder `to`, durably, its last record perhaps cut short.

    What names another file is copied before it: so the copy holds all that its head, its snapshot and its records name.
    Raises Fatal where `to` exists, when the disk refuses, or when payloads were dropped in that very moment.
    """
    read_instance(path)
    disk, draft = RealDisk(), to.with_name(f".{to.name}.new")
    if to.exists() or to.is_symlink():
        raise Fatal(f"{to} exists", hint="name a folder that does not")
    try:
        draft.mkdir(mode=0o700)
        try:
            for name in _WHOLE:
                if (path / name).exists():
                    _copy(path / name, draft / name)
            for place in (JOURNAL, PAYLOADS, CA):
                (draft / place).mkdir(mode=0o700)
            _segments(disk, path / JOURNAL, draft / JOURNAL)
            _segments(disk, path / PAYLOADS, draft / PAYLOADS)
            for file in sorted((path / CA).iterdir()):
                _copy(file, draft / CA / file.name)
            for place in (JOURNAL, PAYLOADS, CA, "."):
                disk.sync_dir(draft / place)
            disk.rename(draft, to)
            disk.sync_dir(to.parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise refusal("make a copy", to, error) from error


def _segments(disk: RealDisk, folder: Path, to: Path) -> None:
    for number in segments.extent(disk, folder).numbers:
        try:
            _copy(folder / segments.name(number), to / segments.name(number))
        except FileNotFoundError as error:
            raise Fatal("payloads were dropped at that moment", hint="run the command again") from error


def _copy(file: Path, to: Path) -> None:
    shutil.copyfile(file, to, follow_symlinks=False)
    to.chmod(0o600)
    fd = os.open(to, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
