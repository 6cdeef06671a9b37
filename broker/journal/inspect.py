"""Reading a journal without being its broker: no lock, no writing, also beside one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.errors import Damaged, Malformed
from broker.journal import header, segments, snapshot
from broker.journal.chain import Chain
from broker.journal.disk import Disk, RealDisk, refusal
from broker.journal.header import RecordsHeader
from broker.journal.problem import Kind, Problem
from broker.journal.state import JOURNAL, read_instance
from broker.journal.survey import Survey
from broker.wire.frame import Frame
from broker.wire.head import Head
from broker.wire.names import Digest, Instance
from broker.wire.records import Record


@dataclass(frozen=True, slots=True)
class Report:
    """What a pass over a whole journal found. records: how many could be read; head: digest of the last, if known."""

    instance: Instance
    records: int
    payloads: int
    head: Digest | None
    problems: tuple[Problem, ...]

    @property
    def whole(self) -> bool:
        """Nothing is wrong, or nothing but a last record that is cut short: a broker would start on this."""
        return all(problem.kind is Kind.INCOMPLETE for problem in self.problems)


def verify(path: Path, elsewhere: Head | None = None) -> Report:
    """Judge every byte of the state folder's journal and payloads, and list every problem.

    elsewhere: a head that was kept outside of the folder. Beside a running broker the last record may be half written:
    that is a problem of its own kind, `incomplete`. Raises Fatal when the folder is no state folder or can't be read.
    """
    instance, disk = read_instance(path), RealDisk()
    problems: list[Problem] = []
    records = 0
    try:
        survey = Survey(disk, path, instance, elsewhere=elsewhere)
        for found in survey.walk():
            if isinstance(found, Problem):
                problems.append(found)
            else:
                records += 1
        problems.extend(_of_snapshot(disk, path, instance))
    except OSError as error:
        raise refusal("read the journal", path, error) from error
    return Report(instance, records, survey.payloads, survey.head, tuple(problems))


def _of_snapshot(disk: Disk, path: Path, instance: Instance) -> list[Problem]:
    """Is it whole, and does it end where the segment behind it says that it begins?"""
    expected = "a snapshot that fits the journal"
    try:
        found = snapshot.read(disk, path, instance)
        if found is None or _begins(disk, path, found.segment) == (found.seq + 1, found.head):
            return []
        why = f"one that ends at record {found.seq} with digest {found.head.hex()[:16]}"
    except Damaged as error:
        why = error.why
    return [Problem(Kind.DAMAGED, snapshot.NAME, 0, None, expected, why)]


def _begins(disk: Disk, path: Path, segment: int) -> tuple[int, Digest] | None:
    """What a record segment's header says of its first record; None where there is no such header."""
    try:
        first = next(segments.frames(disk, path / JOURNAL / segments.name(segment)), None)
        got = header.decode(first.what.raw) if first and isinstance(first.what, Frame) else None
    except (FileNotFoundError, Malformed):
        return None
    return (got.first_seq, got.prev) if isinstance(got, RecordsHeader) else None


def walk(path: Path, disk: Disk | None = None) -> Iterator[Record]:
    """The records in order, up to a last one that is cut short. Payloads are not looked at.

    Raises Fatal at the first other problem: what comes behind it is not to be believed.
    """
    try:
        for found in Chain(disk or RealDisk(), path, read_instance(path)).walk():
            if isinstance(found, Record):
                yield found
            elif found.kind is not Kind.INCOMPLETE:
                raise Damaged(f"the journal is not whole: {found}", hint="lever journal verify")
    except OSError as error:
        raise refusal("read the journal", path, error) from error
