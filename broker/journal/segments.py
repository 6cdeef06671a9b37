"""Segment files: their names, how a new one comes into being, and the frames inside, a piece of the file at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from broker.journal.disk import Disk, write_all
from broker.wire import frame
from broker.wire.frame import Damaged, Frame, Torn

SEGMENT_BYTES = 64 << 20
_NAME = re.compile(r"([0-9]{8})\.seg")
_UNFINISHED = re.compile(r"[0-9]{8}\.seg\.new")
_CHUNK_BYTES = 1 << 20


# These three are named tuples, not dataclasses, because one is made for every frame that is written or read.


class Position(NamedTuple):
    """A place behind the last whole frame: segment number, offset in that file."""

    segment: int
    offset: int


class Piece(NamedTuple):
    """Bytes that go behind the end of a segment. opens: the framed header, where this piece begins the segment."""

    segment: int
    data: bytes
    opens: bytes = b""


class Found(NamedTuple):
    """What stands at an offset of a file. end: where the next frame begins; None when nobody can say."""

    offset: int
    what: Frame | Torn | Damaged
    end: int | None


def name(number: int) -> str:
    """Segment 1 is `00000001.seg`."""
    return f"{number:08}.seg"


@dataclass(frozen=True, slots=True)
class Extent:
    """What a folder held at one moment, so that a reader beside a running broker has an end to reach."""

    numbers: tuple[int, ...]
    last_bytes: int

    def limit(self, number: int) -> int | None:
        """How far to read in this segment: the last one may be growing, all others are as long as they will ever be."""
        return self.last_bytes if number == self.numbers[-1] else None


def extent(disk: Disk, folder: Path, *, closed: bool = False) -> Extent:
    """Which segments are there, in order, and the size of the last. Other names are not segments. Raises OSError.

    closed: without the last one, which may still grow.
    """
    found = (_NAME.fullmatch(entry) for entry in disk.names(folder))
    numbers = tuple(sorted(int(match[1]) for match in found if match))
    numbers = numbers[:-1] if closed else numbers
    return Extent(numbers, disk.size(folder / name(numbers[-1])) if numbers else 0)


def make(disk: Disk, folder: Path, number: int, data: bytes) -> int:
    """A new segment with these first bytes, whole or not at all; its descriptor. Raises OSError."""
    temporary = folder / f"{name(number)}.new"
    fd = disk.create(temporary)
    try:
        write_all(disk, fd, data)
        disk.sync(fd)
        disk.rename(temporary, folder / name(number))
        disk.sync_dir(folder)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def sweep(disk: Disk, folder: Path) -> None:
    """Remove segments that a crash left unfinished: they never had their name, so nothing rests on them."""
    for entry in disk.names(folder):
        if _UNFINISHED.fullmatch(entry):
            disk.remove(folder / entry)


class Tail:
    """The end of the last segment in a folder, opened at the first write. Belongs to one thread."""

    def __init__(self, disk: Disk, folder: Path, last: int) -> None:
        self._disk = disk
        self._folder = folder
        self._last = last
        self._fd: int | None = None

    def write(self, pieces: Iterable[Piece]) -> None:
        """Write and sync; what comes before a new segment is synced before that segment exists. Raises OSError."""
        pending: list[bytes] = []
        for piece in pieces:
            if piece.opens:
                self._flush(pending)
                pending = []
                self.close()
                self._fd = make(self._disk, self._folder, piece.segment, piece.opens)
            pending.append(piece.data)
        self._flush(pending)

    def close(self) -> None:
        """Close the file. What `write` returned from is on disk already."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._disk.close(fd)

    def _flush(self, pending: list[bytes]) -> None:
        if not pending:
            return
        if self._fd is None:
            self._fd = self._disk.append(self._folder / name(self._last))
        write_all(self._disk, self._fd, b"".join(pending))
        self._disk.sync(self._fd)


def frames(disk: Disk, path: Path, limit: int | None = None, *, begin: int = 0) -> Iterator[Found]:
    """The frames of a file in order from the offset `begin`, as if it ended at `limit`; a damaged one is stepped over
    if its head is whole.

    Raises OSError. Holds no more of the file in memory than a megabyte or the longest frame.
    """
    fd = disk.read(path)
    try:
        data, base, at, ended = b"", begin, 0, False
        while True:
            what = frame.read(data, at)
            if isinstance(what, Frame):
                yield Found(base + at, what, base + what.end)
                at = what.end
            elif not ended and not isinstance(what, Damaged):
                wanted = _CHUNK_BYTES if what is None else max(_CHUNK_BYTES, what.expected)
                at_most = wanted if limit is None else min(wanted, max(0, limit - base - len(data)))
                more = disk.read_at(fd, base + len(data), at_most)
                data, base, at, ended = data[at:] + more, base + at, 0, not more
            elif what is None:
                return
            else:
                size = _size(data, at)
                yield Found(base + at, what, base + at + size if size else None)
                if isinstance(what, Torn) or not size:
                    return
                at += size
    finally:
        disk.close(fd)


def _size(data: bytes, at: int) -> int:
    """How long the frame is that can't be read, as its head says; 0 when that can't be believed either."""
    # A head without its body is a torn frame, and then the reader says how long the whole is.
    alone = frame.read(data[at : at + frame.HEAD_BYTES], 0)
    return alone.expected if isinstance(alone, Torn) else 0
