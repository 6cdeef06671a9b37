"""A journal in memory with the group commit in the caller's hand: what is appended is in line until `sync`.

It keeps turn.Journal; tests/model/test_memory_journal.py holds it against the real writer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from hashlib import sha256

from broker.errors import Fatal
from broker.wire.names import Digest, Instant
from broker.wire.records import Draft, PayloadRef, Record

Payloads = tuple[bytes, ...]
_ZERO = Digest(bytes(32))


def kept(records: Sequence[Record]) -> int:
    """How many of the records that reached the disk a start takes: all but a last turn that is not there whole."""
    last = max((n for n, record in enumerate(records) if not record.rest), default=-1)
    return last + 1


class MemoryJournal:
    """records: all that were appended, each with its payloads; the first `durable_count` of them are on disk."""

    def __init__(self, records: Sequence[tuple[Record, Payloads]] = ()) -> None:
        self.records = list(records)
        self.durable_count = len(self.records)
        self.stopped = False

    def append(
        self, at: Instant, drafts: Sequence[Draft], apply: Callable[[Record, Payloads], None]
    ) -> tuple[Record, ...]:
        self._raise_if_stopped()
        begin, count = len(self.records) + 1, len(drafts)
        sealed = [(self._seal(begin + n, at, draft, count - 1 - n), draft.payloads) for n, draft in enumerate(drafts)]
        try:
            for record, payloads in sealed:
                apply(record, payloads)
        except Exception as error:
            self.stopped = True
            raise Fatal("a decision could not be applied") from error
        self.records += sealed
        return tuple(record for record, _ in sealed)

    def durable(self) -> Awaitable[None]:
        self._raise_if_stopped()
        return _Durable(self, len(self.records))

    def sync(self, count: int | None = None) -> None:
        """Make so many more records durable, or all."""
        line = len(self.records) - self.durable_count
        self.durable_count += line if count is None else min(count, line)

    @property
    def kept(self) -> list[tuple[Record, Payloads]]:
        """What a start after a crash at this moment reads."""
        durable = self.records[: self.durable_count]
        return durable[: kept([record for record, _ in durable])]

    @staticmethod
    def _seal(seq: int, at: Instant, draft: Draft, rest: int) -> Record:
        refs = tuple(PayloadRef(Digest(sha256(raw).digest()), 1, n, len(raw)) for n, raw in enumerate(draft.payloads))
        return Record(seq, at, _ZERO, refs, draft.fact, rest)

    def _raise_if_stopped(self) -> None:
        if self.stopped:
            raise Fatal("the disk refused")


class _Durable:
    """Waits by yielding; whoever drives the coroutine asks again after a `sync`."""

    def __init__(self, journal: MemoryJournal, needed: int) -> None:
        self._journal, self._needed = journal, needed

    def __await__(self) -> Generator[None, None, None]:
        while self._journal.durable_count < self._needed:
            self._journal._raise_if_stopped()
            yield
