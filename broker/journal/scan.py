"""One pass over a whole journal, judging every byte: the same eyes for recovery and for `lever journal verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from broker.errors import Malformed
from broker.journal import header, segments
from broker.journal.disk import Disk
from broker.journal.header import NO_DIGEST, PayloadsHeader, RecordsHeader
from broker.journal.segments import Found, Position
from broker.journal.state import JOURNAL
from broker.wire import record_codec
from broker.wire.frame import Damaged, Frame, Torn
from broker.wire.names import Digest, Instance
from broker.wire.records import InstanceCreated, Record


class Kind(StrEnum):
    """What is wrong with a place. Only `incomplete` is what an honest crash leaves behind."""

    INCOMPLETE = "incomplete"  # the last frame of the last segment is cut short
    DAMAGED = "damaged"  # bytes that are no frame, or a frame that is no record
    MISPLACED = "misplaced"  # a whole record or segment that does not follow the one before it
    MISSING = "missing"  # a segment, or the record that every journal begins with, is not there
    PAYLOAD = "payload"  # what a record points to is not what it says


@dataclass(frozen=True, slots=True)
class Problem:
    """One place that is not as it should be. file: inside the state folder; seq: the record there, if that is known."""

    kind: Kind
    file: str
    offset: int
    seq: int | None
    expected: str
    found: str

    def __str__(self) -> str:
        record = "" if self.seq is None else f", record {self.seq}"
        return f"{self.file} at byte {self.offset}{record}: expected {self.expected}, found {self.found}"


def broken(what: Torn | Damaged) -> str:
    """A frame that is none, in words."""
    if isinstance(what, Damaged):
        return what.why
    whole = f"of {what.expected} bytes" if what.expected else "of a size that its cut head no longer says"
    return f"the first {what.found} bytes of a frame {whole}"


def opening(found: Found | None, file: str, want: RecordsHeader | PayloadsHeader) -> Problem | RecordsHeader | None:
    """Judge a segment's first frame. The header of a record segment is returned for what it says about the chain."""
    expected = f"the header of segment {want.number} of instance {want.instance}"
    if found is None or not isinstance(found.what, Frame):
        words = "an empty file" if found is None else broken(found.what)
        return Problem(Kind.DAMAGED, file, 0, None, expected, words)
    try:
        got = header.decode(found.what.raw)
    except Malformed as error:
        return Problem(Kind.DAMAGED, file, 0, None, expected, str(error))
    if (type(got), got.number, got.instance) != (type(want), want.number, want.instance):
        what = "record" if isinstance(got, RecordsHeader) else "payload"
        words = f"the header of {what} segment {got.number} of instance {got.instance}"
        return Problem(Kind.MISPLACED, file, 0, None, expected, words)
    return got if isinstance(got, RecordsHeader) else None


class Chain:
    """The record segments, first to last. After `walk`: `end`, `next_seq` and `head` say where the next record goes."""

    def __init__(self, disk: Disk, path: Path, instance: Instance) -> None:
        self._disk = disk
        self._folder = path / JOURNAL
        self._instance = instance
        self.end = Position(0, 0)
        self.next_seq: int | None = 1  # None: bytes before this place can't be read
        self.head: Digest | None = NO_DIGEST

    def walk(self) -> Iterator[Record | Problem]:
        """Every record that can be read, and every problem, in the order of the files. Raises OSError."""
        there = segments.numbers(self._disk, self._folder)
        before = 0
        for number in there or [2]:  # nothing there: segment 1 is missing before any other
            if number != before + 1:
                yield self._missing(before + 1, f"segment {number}" if there else "no segment")
            if there:
                yield from self._segment(number, last=number == there[-1])
            before = number
        if there and self.next_seq == 1:
            yield Problem(Kind.MISSING, self._file(1), self.end.offset, 1, "the record instance_created", "no record")

    def _segment(self, number: int, *, last: bool) -> Iterator[Record | Problem]:
        file = self._file(number)
        frames = segments.frames(self._disk, self._folder / segments.name(number))
        first = next(frames, None)
        yield from self._opening(first, file, number)
        self.end = Position(number, first.end if first and first.end else 0)
        for found in frames:
            if isinstance(found.what, Frame):
                yield from self._record(found.what, file, found.offset)
                self.end = Position(number, found.offset + len(found.what.raw) + OVERHEAD)
            else:
                yield self._broken(found, file, last=last)

    def _opening(self, found: Found | None, file: str, number: int) -> Iterator[Problem]:
        want = RecordsHeader(self._instance, number, 1, NO_DIGEST)
        got = opening(found, file, want)
        if isinstance(got, Problem):
            yield got
        elif isinstance(got, RecordsHeader):
            says, ours = (got.first_seq, got.prev), (self.next_seq, self.head)
            if ours[0] not in (None, says[0]) or ours[1] not in (None, says[1]):
                yield Problem(
                    Kind.MISPLACED, file, 0, self.next_seq,
                    f"a segment that begins with {_link(*ours)}", f"one that begins with {_link(*says)}",
                )  # fmt: skip
            self.next_seq, self.head = says

    def _record(self, whole: Frame, file: str, offset: int) -> Iterator[Record | Problem]:
        expected, head = self.next_seq, self.head
        try:
            record = record_codec.decode(whole.raw)
        except Malformed as error:
            yield Problem(Kind.DAMAGED, file, offset, expected, "a record", str(error))
            self._lose(certain=False)
            return
        self.next_seq, self.head = record.seq + 1, whole.digest
        if expected not in (None, record.seq) or head not in (None, record.prev):
            yield Problem(
                Kind.MISPLACED, file, offset, record.seq,
                _link(expected, head), _link(record.seq, record.prev),
            )  # fmt: skip
        if (record.seq == 1) != isinstance(record.fact, InstanceCreated) or not self._ours(record):
            words = f"{record_codec.kind_of(record.fact)} as record {record.seq}"
            expected_words = f"instance_created of {self._instance} as record 1, and there alone"
            yield Problem(Kind.MISPLACED, file, offset, record.seq, expected_words, words)
        yield record
