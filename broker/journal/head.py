"""The head kept beside the journal: the last record of some moment, by which a journal that was cut is found."""

from __future__ import annotations

from pathlib import Path

from broker.errors import Damaged, Malformed
from broker.journal.chain import Chain
from broker.journal.disk import Disk, refusal, write_all
from broker.journal.problem import Kind, Problem
from broker.wire import head as wire
from broker.wire.head import Head
from broker.wire.names import Digest, Instance
from broker.wire.records import Record

NAME = "head"


def keep(disk: Disk, folder: Path, instance: Instance, head: Head) -> None:
    """Replace the file as a whole, durably. Only what is durable itself may be kept. Raises OSError."""
    temporary = folder / f"{NAME}.new"
    fd = disk.create(temporary)
    try:
        write_all(disk, fd, wire.encode(head, instance))
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, folder / NAME)
    disk.sync_dir(folder)


def sweep(disk: Disk, folder: Path) -> None:
    """Remove what a crash left unfinished. Raises OSError."""
    if f"{NAME}.new" in disk.names(folder):
        disk.remove(folder / f"{NAME}.new")


def read(disk: Disk, folder: Path, instance: Instance) -> Head:
    """What is kept. Raises Damaged when it is missing or is not of this instance, Fatal when it can't be read."""
    path = folder / NAME
    try:
        fd = disk.read(path)
        try:
            raw = disk.read_at(fd, 0, wire.MAX_BYTES)
        finally:
            disk.close(fd)
    except FileNotFoundError:
        raise Damaged("no such file") from None
    except OSError as error:
        raise refusal(f"read `{NAME}`", folder, error) from error
    try:
        return wire.parse(raw, instance)
    except Malformed as error:
        raise Damaged(error.why) from error


class HeadCheck:
    """Compares a journal with the head that was kept before the journal was read: a journal only grows."""

    def __init__(self, kept: Head, place: str = NAME) -> None:
        """place: where it was kept."""
        self._kept = kept
        self._place = place
        self._found: Digest | None = None

    @classmethod
    def of(cls, disk: Disk, folder: Path, instance: Instance) -> HeadCheck | Problem:
        """For this state folder; or what is wrong with the kept head itself."""
        try:
            return cls(read(disk, folder, instance))
        except Damaged as error:
            return Problem(Kind.MISSING, NAME, 0, None, "the number and digest of a record", error.why)

    def see(self, record: Record) -> None:
        """Each record in order."""
        if record.seq == self._kept.seq + 1:
            self._found = record.prev

    def end(self, chain: Chain) -> Problem | None:
        """After the last record: does the journal hold the one that was kept?"""
        last = 0 if chain.next_seq is None else chain.next_seq - 1
        found = chain.head if last == self._kept.seq else self._found
        if found == self._kept.digest:
            return None
        if chain.next_seq is None or (found is None and last >= self._kept.seq):
            return None  # where records can't be read, that is told already
        kept = f"record {self._kept.seq} with digest {self._kept.digest.hex()[:16]}, which was written"
        there = f"a journal that ends at record {last}" if last < self._kept.seq else "another record of that number"
        return Problem(Kind.MISSING, self._place, 0, self._kept.seq, kept, there)
