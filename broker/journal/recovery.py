"""From the files to the end of the chain: a torn tail is cut, everything else that is not right is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker.errors import Damaged
from broker.journal import head, segments
from broker.journal.chain import Chain
from broker.journal.disk import Disk, refusal
from broker.journal.head import HeadCheck
from broker.journal.payloads import PayloadScan, read_payload
from broker.journal.problem import Kind, Problem
from broker.journal.segments import Position
from broker.journal.state import StateFolder
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


def recover(folder: StateFolder, disk: Disk, each: Callable[[Record], None]) -> Recovered:
    """Check the whole journal and all payloads, giving each record in order to `each`; then cut what was torn.

    The memory it takes does not grow with the journal. Raises Fatal at the first thing that a crash can't explain, and
    when there is no journal: nothing but `create` makes one. Until it returns, what `each` saw is not to be acted on.
    """
    torn: list[Problem] = []
    try:
        kept = HeadCheck.of(disk, folder.path, folder.instance)
        chain = Chain(disk, folder.path, folder.instance)
        payloads = PayloadScan(disk, folder.path, folder.instance)
        for found in chain.walk():
            if isinstance(found, Problem):
                _tolerate(found, torn)
                continue
            for ref in found.payloads:
                for problem in payloads.check(ref, found.seq):
                    _tolerate(problem, torn)
            if isinstance(kept, HeadCheck):
                kept.see(found)
            each(found)
        for loose in payloads.finish():
            _tolerate(loose, torn)
        if lost := kept.end(chain) if isinstance(kept, HeadCheck) else kept:
            _tolerate(lost, torn)
        cut_bytes = sum(_cut(disk, folder.path / problem.file, problem.offset) for problem in torn)
        for place in (folder.journal, folder.payloads):
            segments.sweep(disk, place)
        head.sweep(disk, folder.path)
    except OSError as error:
        raise refusal("read the journal", folder.path, error) from error
    assert chain.head is not None
    assert chain.next_seq is not None
    return Recovered(chain.head, chain.next_seq, chain.end, payloads.end, cut_bytes, folder.path, disk)


def _tolerate(problem: Problem, torn: list[Problem]) -> None:
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
