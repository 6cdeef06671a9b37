"""From a state folder to the book: what a daemon knows when it starts, and the snapshots that make it quick.

Run as a program (`python -m broker.restart STATE`), beside the daemon, it makes the next snapshot: it reads what is
closed as a start would, and stops nobody.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import cbor2
from pydantic import TypeAdapter, ValidationError

from broker.errors import BrokerError, Damaged
from broker.journal import snapshot
from broker.journal.chain import Chain
from broker.journal.disk import Disk, RealDisk
from broker.journal.inspect import walk
from broker.journal.payloads import end_of
from broker.journal.problem import Problem
from broker.journal.recovery import Recovered, recover
from broker.journal.segments import Position
from broker.journal.snapshot import Snapshot
from broker.journal.state import StateFolder, read_instance
from broker.rules import image
from broker.rules.book import LEEWAY_S, Book, SetBack
from broker.rules.image import Image
from broker.wire.head import Head
from broker.wire.names import Instance, Instant
from broker.wire.records import ClockAccepted, PayloadsDropped, Record
from broker.wire.times import SECOND

_IMAGE = TypeAdapter(Image)


class _ClockWasSetBack(Exception):
    """What a snapshot has forgotten may be current again: only all of the journal says."""


def read(
    folder: StateFolder, disk: Disk, *, accept_clock_at: Instant | None = None, elsewhere: Head | None = None
) -> tuple[Book, Recovered]:
    """The journal and its image: from the snapshot on, or all of it. Raises Fatal.

    elsewhere: a head that was kept outside of the folder, which the journal must hold. Where the clock was set back, or
    is now (accept_clock_at), all of it is read, twice: to know what must be kept.
    """
    begin = snapshot.read(disk, folder.path, folder.instance)
    if begin and accept_clock_at is None:
        try:
            book = _book(begin)
            recovered = recover(folder, disk, lambda record: _follow(book, record), begin, elsewhere)
        except _ClockWasSetBack:
            pass
        else:
            book.fill(recovered.read_payload)
            return book, recovered
    book, set_back = Book(folder.instance), list[SetBack]()
    recovered = recover(folder, disk, lambda record: _fold(book, record, set_back), None, elsewhere)
    if accept_clock_at is not None and book.newest_at - accept_clock_at > LEEWAY_S * SECOND:
        set_back.append(SetBack(recovered.next_seq, accept_clock_at))
    if set_back:
        book = Book(folder.instance, set_back)
        for record in walk(folder.path, disk):
            _fold(book, record)
    book.fill(recovered.read_payload)
    return book, recovered


def take_snapshot(path: Path, disk: Disk) -> Snapshot | None:
    """Make the snapshot of all closed segments of a state folder; None where there is nothing new to cover.

    Needs no lock: closed segments do not change, and a broker that runs writes others. Raises Fatal, OSError.
    """
    instance = read_instance(path)
    begin = snapshot.read(disk, path, instance)
    if snapshot.closed(disk, path) <= (begin.segment if begin else 1):
        return None
    try:
        made = _made(disk, path, instance, begin)
    except _ClockWasSetBack:
        made = _made(disk, path, instance, None)
    snapshot.write(disk, path, made)
    return made


def _made(disk: Disk, path: Path, instance: Instance, begin: Snapshot | None) -> Snapshot:
    set_back: list[SetBack] = []
    if begin is None:  # what was forgotten by a clock that was ahead has to be known before it is
        everything = walk(path, disk)
        set_back = [SetBack(record.seq, record.at) for record in everything if isinstance(record.fact, ClockAccepted)]
    book = _book(begin) if begin else Book(instance, set_back)
    payloads = begin.payloads if begin else Position(1, 0)
    chain, dropped = Chain(disk, path, instance, begin, closed=True), begin.dropped if begin else 0
    for found in chain.walk():
        if isinstance(found, Problem):
            raise Damaged(f"no snapshot of a journal that is not whole: {found}", hint="lever journal verify")
        _follow(book, found) if begin else _fold(book, found)
        payloads = end_of(found.payloads[-1]) if found.payloads else payloads
        dropped = found.fact.through if isinstance(found.fact, PayloadsDropped) else dropped
    assert chain.head is not None
    assert chain.next_seq is not None
    segment = chain.end.segment + 1
    size_bytes = snapshot.covered_bytes(disk, path, segment)
    picture = cbor2.dumps(_IMAGE.dump_python(image.of(book)), string_referencing=True)
    return Snapshot(instance, segment, chain.next_seq - 1, chain.head, size_bytes, payloads, dropped, picture)


def _book(of: Snapshot) -> Book:
    try:
        return image.book(of.instance, _IMAGE.validate_python(cbor2.loads(of.image)))
    except (ValidationError, cbor2.CBORDecodeError) as error:
        raise Damaged(f"the snapshot is of another version of lever: {error}", hint="remove snapshot.cbor") from error


def _follow(book: Book, record: Record) -> None:
    """A record behind a snapshot."""
    if isinstance(record.fact, ClockAccepted):
        raise _ClockWasSetBack
    _fold(book, record)


def _fold(book: Book, record: Record, set_back: list[SetBack] | None = None) -> None:
    """A record that does not fit what came before it was not written by this program."""
    try:
        book.apply(record, None)
    except (BrokerError, KeyError) as error:
        raise Damaged(
            f"record {record.seq} does not fit the ones before it: {error!r}", hint="lever journal verify"
        ) from error
    if set_back is not None and isinstance(record.fact, ClockAccepted):
        set_back.append(SetBack(record.seq, record.at))


if __name__ == "__main__":
    os.nice(10)
    try:
        take_snapshot(Path(sys.argv[1]), RealDisk())
    except (BrokerError, OSError) as error:
        sys.exit(f"no snapshot: {error}")
