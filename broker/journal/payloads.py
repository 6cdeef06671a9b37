"""The payload segments: that every reference finds its bytes, and reading them by reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from broker.errors import Damaged
from broker.journal import segments
from broker.journal.disk import Disk, refusal
from broker.journal.header import PayloadsHeader
from broker.journal.problem import Kind, Misfit, Problem, broken, opening
from broker.journal.segments import Found, Position
from broker.journal.snapshot import Snapshot
from broker.journal.state import PAYLOADS
from broker.wire import frame
from broker.wire.frame import Frame
from broker.wire.names import Instance
from broker.wire.records import PayloadRef


class PayloadScan:
    """One pass over the payload segments of this moment, beside a Chain made before: references come in their order.

    After `finish`, `end` says where the next payload goes. Frames that no record names are whole or a torn tail.
    Segments may be missing, as far as the records say that they were `dropped`; what of them is there is judged.
    """

    def __init__(self, disk: Disk, path: Path, instance: Instance, begin: Snapshot | None = None) -> None:
        self.dropped = begin.dropped if begin else 0
        self.end = Position(0, 0)
        self._disk = disk
        self._folder = path / PAYLOADS
        self._instance = instance
        self._there = segments.extent(disk, self._folder)
        self._frames: Iterator[Found] = iter(())
        self._ahead: Found | None = None
        self._unread: dict[int, int] = {}  # by segment that is not there, the first record that names it
        if begin and begin.payloads.segment in self._there.numbers:
            self.end = begin.payloads
            file = self._folder / segments.name(self.end.segment)
            self._frames = segments.frames(disk, file, self._there.limit(self.end.segment), begin=self.end.offset)
            self._ahead = next(self._frames, None)

    def check(self, ref: PayloadRef, seq: int) -> list[Problem]:
        """What is wrong with the bytes that this reference of record `seq` names. Raises OSError."""
        if ref.segment not in self._there.numbers:
            self._unread.setdefault(ref.segment, seq)
            return []
        problems = list(self._reach(ref)) if not self._reached(ref) else []
        if self._ahead is not None and self._reached(ref):
            words = _differs(self._ahead, ref)
            self._step()
        else:
            words = "no frame that begins there, behind the payload before"
        if words:
            problems.append(Problem(Kind.PAYLOAD, _file(ref.segment), ref.offset, seq, _spell(ref), words))
        return problems

    def _reached(self, ref: PayloadRef) -> bool:
        return self._ahead is not None and self._ahead.offset == ref.offset and self.end.segment == ref.segment

    def _reach(self, ref: PayloadRef) -> Iterator[Problem]:
        if ref.segment > self.end.segment:
            yield from self._pass(ref.segment)
        while ref.segment == self.end.segment and self._ahead and self._ahead.offset < ref.offset:
            yield from self._unnamed(last=False)

    def finish(self) -> Iterator[Problem]:
        """Judge what lies behind the last reference. Raises OSError."""
        there = self._there.numbers
        newest = there[-1] if there else 1
        yield from self._pass(newest)
        while self._ahead:
            yield from self._unnamed(last=True)
        gone = {*self._unread, *range(self.dropped + 1, newest + 1)}.difference(there)
        for number in sorted(number for number in gone if number > self.dropped):
            seq = self._unread.get(number)
            yield Problem(Kind.MISSING, _file(number), 0, seq, f"payload segment {number}", "no such file")

    def _pass(self, last: int) -> Iterator[Problem]:
        """Go on to this segment, through all between."""
        for number in self._there.numbers:
            if not self.end.segment < number <= last:
                continue
            while self._ahead:
                yield from self._unnamed(last=False)
            file = self._folder / segments.name(number)
            self._frames = segments.frames(self._disk, file, self._there.limit(number))
            first = next(self._frames, None)
            try:
                opening(first, _file(number), PayloadsHeader(self._instance, number))
            except Misfit as error:
                yield error.problem
            self.end = Position(number, first.end if first and first.end else 0)
            self._ahead = next(self._frames, None)

    def _unnamed(self, *, last: bool) -> Iterator[Problem]:
        found = self._ahead
        if found and not isinstance(found.what, Frame):
            yield broken(found, _file(self.end.segment), None, "a payload", last=last)
        self._step()

    def _step(self) -> None:
        if self._ahead and isinstance(self._ahead.what, Frame):
            self.end = Position(self.end.segment, self._ahead.end or 0)
        self._ahead = next(self._frames, None)


def end_of(ref: PayloadRef) -> Position:
    """Just behind the frame that a reference names."""
    return Position(ref.segment, ref.offset + ref.length + frame.OVERHEAD_BYTES)


def drop(disk: Disk, path: Path, through: int, keep: frozenset[int] = frozenset()) -> None:
    """Remove the payload segments up to this one: a durable record says so. Raises OSError.

    keep: those that hold something that is in force all the same.
    """
    folder = path / PAYLOADS
    there = segments.extent(disk, folder).numbers
    numbers = [number for number in there if number <= through and number not in keep]
    for number in numbers:
        disk.remove(folder / segments.name(number))
    if numbers:
        disk.sync_dir(folder)


def read_payload(disk: Disk, path: Path, ref: PayloadRef) -> bytes:
    """The exact bytes of a reference. path: the state folder. Raises Fatal when they are missing or altered."""
    file = path / PAYLOADS / segments.name(ref.segment)
    try:
        fd = disk.read(file)
        try:
            data = disk.read_at(fd, ref.offset, min(ref.length, frame.MAX_FRAME_BYTES) + frame.OVERHEAD_BYTES)
        finally:
            disk.close(fd)
    except OSError as error:
        raise refusal(f"read {_file(ref.segment)}", path, error) from error
    found = frame.read(data, 0)
    if isinstance(found, Frame) and found.digest == ref.digest and len(found.raw) == ref.length:
        return found.raw
    raise Damaged(
        f"{_file(ref.segment)} at byte {ref.offset}: expected {_spell(ref)}, found others", hint="lever journal verify"
    )


def _differs(found: Found, ref: PayloadRef) -> str:
    what = found.what
    if not isinstance(what, Frame):
        return broken(found, "", None, "", last=False).found
    if what.digest == ref.digest and len(what.raw) == ref.length:
        return ""
    return f"{len(what.raw)} bytes with digest {what.digest.hex()[:16]}"


def _spell(ref: PayloadRef) -> str:
    return f"{ref.length} bytes with digest {ref.digest.hex()[:16]}"


def _file(number: int) -> str:
    return f"{PAYLOADS}/{segments.name(number)}"
