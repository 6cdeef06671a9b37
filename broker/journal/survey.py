"""One pass over a whole journal: the chain, the payloads and the kept head, each judged with the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from broker.journal.chain import Chain
from broker.journal.disk import Disk
from broker.journal.head import HeadCheck
from broker.journal.payloads import PayloadScan
from broker.journal.problem import Problem
from broker.journal.segments import Position
from broker.journal.snapshot import Snapshot
from broker.wire.head import Head
from broker.wire.names import Digest, Instance
from broker.wire.records import PayloadsDropped, Record

ELSEWHERE = "the head kept elsewhere"


class Survey:
    """What the state folder holds at this moment, from the beginning or from behind a snapshot. Raises OSError."""

    def __init__(
        self, disk: Disk, path: Path, instance: Instance, begin: Snapshot | None = None, elsewhere: Head | None = None
    ) -> None:
        """elsewhere: the head that was kept outside of this folder."""
        self._kept = [HeadCheck.of(disk, path, instance)]
        if elsewhere:
            self._kept.append(HeadCheck(elsewhere, ELSEWHERE))
        self._chain = Chain(disk, path, instance, begin)
        self._scan = PayloadScan(disk, path, instance, begin)
        self.payloads = 0

    def walk(self) -> Iterator[Record | Problem]:
        """Every record that can be read, and every problem. Raises OSError."""
        for found in self._chain.walk():
            yield found
            if isinstance(found, Record):
                yield from self._beside(found)
        yield from self._scan.finish()
        for kept in self._kept:
            if lost := kept.end(self._chain) if isinstance(kept, HeadCheck) else kept:
                yield lost

    @property
    def head(self) -> Digest | None:
        """The digest of the last record, where that is known."""
        return self._chain.head

    @property
    def next_seq(self) -> int | None:
        """The number of the record to come, where that is known."""
        return self._chain.next_seq

    @property
    def records_end(self) -> Position:
        """Where the next record goes."""
        return self._chain.end

    @property
    def payloads_end(self) -> Position:
        """Where the next payload goes."""
        return self._scan.end

    def _beside(self, record: Record) -> Iterator[Problem]:
        for kept in self._kept:
            if isinstance(kept, HeadCheck):
                kept.see(record)
        if isinstance(record.fact, PayloadsDropped):
            self._scan.dropped = record.fact.through
        for ref in record.payloads:
            self.payloads += 1
            yield from self._scan.check(ref, record.seq)
