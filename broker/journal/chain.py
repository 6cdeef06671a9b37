"""The record segments from first to last, every byte judged and every link of the chain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from broker.errors import Malformed
from broker.journal import segments
from broker.journal.disk import Disk
from broker.journal.header import NO_DIGEST, RecordsHeader
from broker.journal.problem import Kind, Misfit, Problem, broken, opening
from broker.journal.segments import Found, Position
from broker.journal.snapshot import Snapshot
from broker.journal.state import JOURNAL
from broker.wire import record_codec
from broker.wire.frame import Frame, Torn
from broker.wire.names import Digest, Instance
from broker.wire.records import Fact, InstanceCreated, Record


class Chain:
    """What the record segments hold at this moment. After `walk`, `end`, `next_seq`, `head` say what the next follows.

    next_seq and head are None behind bytes that can't be read: what follows is then taken at its word. Raises OSError.
    begin: what is taken for read; closed: stop before the last segment, which may be growing.
    """

    def __init__(
        self, disk: Disk, path: Path, instance: Instance, begin: Snapshot | None = None, *, closed: bool = False
    ) -> None:
        self.end = Position(0, 0)
        self.next_seq: int | None = begin.seq + 1 if begin else 1
        self.head: Digest | None = begin.head if begin else NO_DIGEST
        self._first = begin.segment if begin else 1
        self._disk = disk
        self._folder = path / JOURNAL
        self._instance = instance
        self._there = segments.extent(disk, self._folder, closed=closed)
        self._turn: list[tuple[Record, Position]] = []  # a turn whose last record has not come yet; where each lies

    def walk(self) -> Iterator[Record | Problem]:
        """Every record that can be read, and every problem, in the order of the files. Raises OSError.

        The records of a turn come once its last one is there.
        """
        there = self._there.numbers
        expected = 1
        for number in there or [0]:
            if number != expected:
                found = f"segment {number} instead" if there else "no segment at all"
                yield Problem(Kind.MISSING, _file(expected), 0, self.next_seq, f"segment {expected}", found)
                self.next_seq = self.head = None
            if there and number >= self._first:
                yield from self._segment(number, last=number == there[-1])
            expected = number + 1
        if expected <= self._first and self._there.numbers:
            yield Problem(Kind.MISSING, _file(expected), 0, self.next_seq, f"segment {self._first}", "no such file")
        if self.next_seq == 1:
            yield Problem(Kind.MISSING, _file(1), self.end.offset, 1, "the record instance_created", "no record")

    def _segment(self, number: int, *, last: bool) -> Iterator[Record | Problem]:
        file = _file(number)
        frames = segments.frames(self._disk, self._folder / segments.name(number), self._there.limit(number))
        first = next(frames, None)
        try:
            got = opening(first, file, RecordsHeader(self._instance, number, 1, NO_DIGEST))
            assert isinstance(got, RecordsHeader)
            yield from self._continues(got, file)
        except Misfit as error:
            yield error.problem
        self.end = Position(number, first.end if first and first.end else 0)
        for found in frames:
            if isinstance(found.what, Frame):
                yield from self._record(found.what, file, Position(number, found.offset))
                self.end = Position(number, found.end or 0)
            elif not (self._turn and last and isinstance(found.what, Torn)):
                yield from self._let_go()
                yield broken(found, file, self.next_seq, "a record", last=last)
                self._step_over(found, last=last)
        if self._turn:
            yield self._lacking(file, last=last)
            yield from self._let_go()

    def _continues(self, got: RecordsHeader, file: str) -> Iterator[Problem]:
        seq, head = self.next_seq, self.head
        self.next_seq, self.head = got.first_seq, got.prev
        if seq not in (None, got.first_seq) or head not in (None, got.prev):
            ours, says = _link(seq, head), _link(got.first_seq, got.prev)
            yield Problem(Kind.MISPLACED, file, 0, seq, f"a segment that begins with {ours}", f"one for {says}")

    def _step_over(self, found: Found, *, last: bool) -> None:
        if isinstance(found.what, Torn):
            if not last:
                self.next_seq = self.head = None
            return  # a torn tail was never part of the chain
        self.next_seq = None if self.next_seq is None or found.end is None else self.next_seq + 1
        self.head = None

    def _record(self, whole: Frame, file: str, place: Position) -> list[Record | Problem]:
        seq, head, offset = self.next_seq, self.head, place.offset
        self.head = whole.digest
        try:
            record = _decode(whole.raw)
        except Malformed as error:
            self.next_seq = None if seq is None else seq + 1
            return [*self._let_go(), Problem(Kind.DAMAGED, file, offset, seq, "a record", str(error))]
        self.next_seq = record.seq + 1
        found: list[Record | Problem] = []
        if seq not in (None, record.seq) or head not in (None, record.prev):
            link = _link(record.seq, record.prev)
            found.append(Problem(Kind.MISPLACED, file, offset, record.seq, _link(seq, head), link))
        if record.seq == 1 and not self._begins(record.fact):
            words = f"{record_codec.kind_of(record.fact)} of another instance or kind"
            found.append(Problem(Kind.MISPLACED, file, offset, 1, f"instance_created of {self._instance}", words))
        if self._turn and record.rest != (due := self._turn[-1][0].rest - 1):
            words = f"one with {record.rest} to follow"
            expected = f"the next record of a turn, with {due} to follow"
            found.append(Problem(Kind.MISPLACED, file, offset, record.seq, expected, words))
        self._turn.append((record, place))
        if not record.rest:
            found += self._let_go()
        return found

    def _let_go(self) -> list[Record]:
        turn, self._turn = self._turn, []
        return [record for record, _ in turn]

    def _lacking(self, file: str, *, last: bool) -> Problem:
        """A turn whose last records are not there. At the journal's end it was never part of the chain."""
        first, place = self._turn[0]
        words = f"the first {len(self._turn)} of them"
        if last:
            self.next_seq, self.head, self.end, self._turn = first.seq, first.prev, place, []
        kind = Kind.INCOMPLETE if last else Kind.MISPLACED
        return Problem(kind, file, place.offset, first.seq, f"the {first.rest + 1} records of a turn", words)

    def _begins(self, fact: Fact) -> bool:
        return isinstance(fact, InstanceCreated) and fact.instance == self._instance


def _decode(raw: bytes) -> Record:
    if len(raw) > record_codec.MAX_RECORD_BYTES:
        raise Malformed("record", f"beyond {record_codec.MAX_RECORD_BYTES} bytes")
    return record_codec.decode(raw)


def _file(number: int) -> str:
    return f"{JOURNAL}/{segments.name(number)}"


def _link(seq: int | None, head: Digest | None) -> str:
    number = "a record" if seq is None else f"record {seq}"
    return number if head is None else f"{number} behind digest {head.hex()[:16]}"
