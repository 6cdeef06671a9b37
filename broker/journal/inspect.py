"""Reading a journal without being its broker: no lock, no writing, also beside one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.errors import Damaged
from broker.journal import snapshot
from broker.journal.chain import Chain
from broker.journal.disk import Disk, RealDisk, refusal
from broker.journal.problem import Kind, Problem
from broker.journal.state import read_instance
from broker.journal.survey import Survey
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
    try:
        snapshot.read(disk, path, instance)
    except Damaged as error:
        return [Problem(Kind.DAMAGED, snapshot.NAME, 0, None, "a snapshot that fits the journal", error.why)]
    return []


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
