"""From the files to the end of the chain: a torn tail is cut, everything else that is not right is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker.errors import Damaged
from broker.journal import head, segments, snapshot
from broker.journal.disk import Disk, refusal
from broker.journal.payloads import read_payload
from broker.journal.problem import Kind, Problem
from broker.journal.segments import Position
from broker.journal.snapshot import Snapshot
from broker.journal.state import StateFolder
from broker.journal.survey import ELSEWHERE, Survey
from broker.wire.head import Head
from broker.wire.names import Digest
from broker.wire.records import PayloadRef, Record


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where a journal ends. head: the digest of its last record; cut_bytes: the torn tails that were removed."""

    head: Digest
    next_seq: int
    records_end: Position
    payloads_end: Position
    cut_bytes: int
    path: Path
    disk: Disk

    def read_payload(self, ref: PayloadRef) -> bytes:
        """The exact bytes that a record refers to. Raises Fatal when they are missing or altered."""
        return read_payload(self.disk, self.path, ref)


def recover(
    folder: StateFolder,
    disk: Disk,
    each: Callable[[Record], None],
    begin: Snapshot | None = None,
    elsewhere: Head | None = None,
) -> Recovered:
    """Check the journal and all payloads, giving each record in order to `each`; then cut what was torn.

    begin: where to begin, instead of at the first record; elsewhere: the head that was kept outside. The memory it
    takes does not grow with the journal. Raises Fatal at the first thing that a crash can't explain, and when there is
    no journal: nothing but `create` makes one. Until it returns, what `each` saw is not to be acted on.
    """
    torn: list[Problem] = []
    try:
        survey = Survey(disk, folder.path, folder.instance, begin, elsewhere)
        for found in survey.walk():
            if isinstance(found, Problem):
                _tolerate(found, torn)
            else:
                each(found)
        cut_bytes = sum(_cut(disk, folder.path / problem.file, problem.offset) for problem in torn)
        for place in (folder.journal, folder.payloads):
            segments.sweep(disk, place)
        head.sweep(disk, folder.path)
        snapshot.sweep(disk, folder.path)
    except OSError as error:
        raise refusal("read the journal", folder.path, error) from error
    assert survey.head is not None
    assert survey.next_seq is not None
    ends = survey.records_end, survey.payloads_end
    return Recovered(survey.head, survey.next_seq, *ends, cut_bytes, folder.path, disk)


def _tolerate(problem: Problem, torn: list[Problem]) -> None:
    if problem.file == ELSEWHERE:
        raise Damaged(
            f"this state folder is older than what was written: {problem}",
            hint="bring back a newer copy; where there is none: lever broker serve --restored",
        )
    if problem.kind is not Kind.INCOMPLETE:
        raise Damaged(f"the journal is not whole: {problem}", hint="lever journal verify")
    torn.append(problem)


def _cut(disk: Disk, file: Path, offset: int) -> int:
    cut_bytes = disk.size(file) - offset
    fd = disk.append(file)
    try:
        disk.truncate(fd, offset)
        disk.sync(fd)
    finally:
        disk.close(fd)
    return cut_bytes
