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
        sealed = [(self._seal(len(self.records) + n, at, draft), draft.payloads) for n, draft in enumerate(drafts, 1)]
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

    @staticmethod
    def _seal(seq: int, at: Instant, draft: Draft) -> Record:
        refs = tuple(PayloadRef(Digest(sha256(raw).digest()), 1, n, len(raw)) for n, raw in enumerate(draft.payloads))
        return Record(seq, at, _ZERO, refs, draft.fact)

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
