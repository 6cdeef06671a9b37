"""What can be wrong with a place in a journal, and how it is said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from broker.errors import Malformed
from broker.journal import header
from broker.journal.header import PayloadsHeader, RecordsHeader
from broker.journal.segments import Found
from broker.wire.frame import Damaged, Frame, Torn


class Kind(StrEnum):
    """What is wrong. Only `incomplete` is what an honest crash leaves behind."""

    INCOMPLETE = (
        "incomplete"  # the last frame of the last segment is cut short, or the last turn's last records are missing
    )
    DAMAGED = "damaged"  # bytes that are no frame, or a frame that is no record
    MISPLACED = "misplaced"  # a whole record or segment that does not follow the one before it
    MISSING = "missing"  # a segment, a record that must be there, or the kept head
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
        place = f"{self.file} at byte {self.offset}" if "/" in self.file else self.file
        return f"{place}{record}: expected {self.expected}, found {self.found}"


class Misfit(Exception):
    """A segment that does not begin as it must. Stays inside this room."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def broken(found: Found, file: str, seq: int | None, expected: str, *, last: bool) -> Problem:
    """The Problem of a frame that is none. last: nothing is written after this file, so a cut frame is a torn tail."""
    if isinstance(found.what, Torn):
        size = f"of {found.what.expected} bytes" if found.what.expected else "whose head is cut too"
        words = f"the first {found.what.found} bytes of a frame {size}"
        return Problem(Kind.INCOMPLETE if last else Kind.DAMAGED, file, found.offset, seq, expected, words)
    words = found.what.why if isinstance(found.what, Damaged) else "a whole frame"
    if found.end is None:
        words += "; nothing behind it in this file can be read"
    return Problem(Kind.DAMAGED, file, found.offset, seq, expected, words)


def opening(found: Found | None, file: str, want: RecordsHeader | PayloadsHeader) -> RecordsHeader | PayloadsHeader:
    """The header that a segment begins with. Raises Misfit when it is not of this kind, number and instance."""
    expected = f"the header of {_spell(want)}"
    if found is None:
        raise Misfit(Problem(Kind.DAMAGED, file, 0, None, expected, "an empty file"))
    if not isinstance(found.what, Frame):
        raise Misfit(broken(found, file, None, expected, last=False))
    try:
        got = header.decode(found.what.raw)
    except Malformed as error:
        raise Misfit(Problem(Kind.DAMAGED, file, 0, None, expected, str(error))) from error
    if (type(got), got.number, got.instance) != (type(want), want.number, want.instance):
        raise Misfit(Problem(Kind.MISPLACED, file, 0, None, expected, f"the header of {_spell(got)}"))
    return got


def _spell(of: RecordsHeader | PayloadsHeader) -> str:
    what = "record" if isinstance(of, RecordsHeader) else "payload"
    return f"{what} segment {of.number} of instance {of.instance}"
