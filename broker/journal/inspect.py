"""Reading a journal without being its broker: no lock, no writing, also beside one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from broker.errors import Damaged
from broker.journal.chain import Chain
from broker.journal.disk import Disk, RealDisk, refusal
from broker.journal.head import HeadCheck
from broker.journal.payloads import PayloadScan
from broker.journal.problem import Kind, Problem
from broker.journal.state import read_instance
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


def verify(path: Path) -> Report:
    """Judge every byte of the state folder's journal and payloads, and list every problem.

    Beside a running broker the last record may be half written: that is a problem of its own kind, `incomplete`.
    Raises Fatal when the folder is no state folder or can't be read.
    """
    instance, disk = read_instance(path), RealDisk()
    problems: list[Problem] = []
    records = payloads = 0
    try:
        kept = HeadCheck.of(disk, path, instance)
        chain, scan = Chain(disk, path, instance), PayloadScan(disk, path, instance)
        for found in chain.walk():
            if isinstance(found, Problem):
                problems.append(found)
                continue
            records += 1
            if isinstance(kept, HeadCheck):
                kept.see(found)
            for ref in found.payloads:
                payloads += 1
                problems.extend(scan.check(ref, found.seq))
        problems.extend(scan.finish())
        if lost := kept.end(chain) if isinstance(kept, HeadCheck) else kept:
            problems.append(lost)
    except OSError as error:
        raise refusal("read the journal", path, error) from error
    return Report(instance, records, payloads, chain.head, tuple(problems))


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
