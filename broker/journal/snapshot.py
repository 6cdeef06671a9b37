"""The snapshot: the book behind a whole number of record segments, so that a start need not read all of history.

It is made from closed segments alone, and it is no second truth: without it the journal says the same.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import cbor2

from broker.errors import Damaged
from broker.journal import segments
from broker.journal.disk import Disk, refusal, write_all
from broker.journal.segments import Position
from broker.journal.state import JOURNAL
from broker.wire.names import Digest, Instance

NAME = "snapshot.cbor"
_UNFINISHED = f"{NAME}.new"
_MAGIC = "lever-snapshot"
_FORMAT = 1
_DIGEST_BYTES = 32
_SHAPE = [str, int, str, int, int, bytes, int, int, int, int, bytes]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a start may take for read.

    segment: the first record segment that it does not cover; seq, head: its last record; covered_bytes: the size of all
    the segments that it covers; payloads: where the first payload behind it is, at the earliest; dropped: the newest
    payload segment that was dropped, 0 for none; image: the book, in CBOR.
    """

    instance: Instance
    segment: int
    seq: int
    head: Digest
    covered_bytes: int
    payloads: Position
    dropped: int
    image: bytes


def closed(disk: Disk, folder: Path) -> int:
    """The number of the last record segment: all before it are closed. folder: the state folder. Raises OSError."""
    numbers = segments.extent(disk, folder / JOURNAL).numbers
    return numbers[-1] if numbers else 0


def covered_bytes(disk: Disk, folder: Path, segment: int) -> int:
    """The size of all record segments before this one. Raises OSError, also where one is missing."""
    return sum(disk.size(folder / JOURNAL / segments.name(number)) for number in range(1, segment))


def write(disk: Disk, folder: Path, snapshot: Snapshot) -> None:
    """Replace the file as a whole, durably. Raises OSError; FileExistsError while another one is being written."""
    fields = (snapshot.segment, snapshot.seq, snapshot.head, snapshot.covered_bytes)
    places = (*snapshot.payloads, snapshot.dropped, snapshot.image)
    raw = cbor2.dumps([_MAGIC, _FORMAT, snapshot.instance, *fields, *places], canonical=True)
    fd = disk.create(folder / _UNFINISHED)
    try:
        write_all(disk, fd, raw + sha256(raw).digest())
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.rename(folder / _UNFINISHED, folder / NAME)
    disk.sync_dir(folder)


def sweep(disk: Disk, folder: Path) -> None:
    """Remove what a crash left unfinished. Raises OSError."""
    if _UNFINISHED in disk.names(folder):
        with suppress(FileNotFoundError):
            disk.remove(folder / _UNFINISHED)


def read(disk: Disk, folder: Path, instance: Instance) -> Snapshot | None:
    """The snapshot, if there is one. Raises Damaged for one that is not whole, of another instance or of a newer
    format, or does not fit the segments that it covers; Fatal when it can't be read."""
    path = folder / NAME
    try:
        size_bytes = disk.size(path)
        fd = disk.read(path)
        try:
            data = disk.read_at(fd, 0, size_bytes)
        finally:
            disk.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refusal(f"read `{NAME}`", folder, error) from error
    found = _parsed(data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:])
    if found is None or found.instance != instance:
        raise _damaged(path, f"expected a snapshot of instance {instance} with its digest")
    try:
        there = covered_bytes(disk, folder, found.segment)
    except OSError:
        there = -1
    if there != found.covered_bytes:
        raise _damaged(path, f"it was made of {found.covered_bytes} bytes of records, and these are not all there")
    return found


def _parsed(raw: bytes, digest: bytes) -> Snapshot | None:
    if sha256(raw).digest() != digest:
        return None
    try:
        value = cbor2.loads(raw, allow_indefinite=False, allow_duplicate_keys=False, max_depth=4)
    except Exception:  # cbor2 documents one error type and raises others for hostile bytes
        return None
    if type(value) is not list or [type(field) for field in value] != _SHAPE or value[:2] != [_MAGIC, _FORMAT]:
        return None
    instance, segment, seq, head, size_bytes, number, offset, dropped, image = value[2:]
    place = Position(number, offset)
    return Snapshot(Instance(instance), segment, seq, Digest(head), size_bytes, place, dropped, image)


def _damaged(path: Path, why: str) -> Damaged:
    hint = f"lever journal verify; where that finds the journal whole: rm {path} (the start then reads all of it)"
    return Damaged(f"{path} does not fit: {why}", hint=hint)
