"""The one writer: what turns append becomes durable in batches, on a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Literal

from broker.errors import Fatal
from broker.journal import head
from broker.journal.disk import Disk, refusal
from broker.journal.recovery import Recovered
from broker.journal.seal import Sealed, Sealer
from broker.journal.segments import SEGMENT_BYTES, Tail
from broker.journal.state import StateFolder
from broker.wire.head import Head
from broker.wire.names import Instant
from broker.wire.records import Draft, Record


class JournalWriter:
    """Appends to a recovered journal; keeps turn.Journal. Lives on one event loop, and is built on it.

    on_durable: called on the loop with each batch's records, in order, each record once, before anybody who waits for
    them goes on. on_stopped: called once, on the loop, when the disk refused; nothing is written or retried after that.
    A segment that has reached segment_bytes is followed by a new one.
    """

    def __init__(
        self,
        folder: StateFolder,
        disk: Disk,
        recovered: Recovered,
        *,
        on_durable: Callable[[tuple[Record, ...]], None],
        on_stopped: Callable[[Fatal], None],
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._where = folder.path
        self._loop = asyncio.get_running_loop()
        self._on_durable, self._on_stopped = on_durable, on_stopped
        places = recovered.records_end, recovered.payloads_end
        self._sealer = Sealer(folder.instance, recovered.next_seq, recovered.head, *places, segment_bytes)
        self._durable_seq = recovered.next_seq - 1
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._stopped: Fatal | None = None
        self._closed = False
        self._queue: queue.SimpleQueue[Sealed | Literal["keep"] | None] = queue.SimpleQueue()
        self._ended = self._loop.create_future()
        self._payloads = Tail(disk, folder.payloads, recovered.payloads_end.segment)
        self._records = Tail(disk, folder.journal, recovered.records_end.segment)
        self._disk, self._instance = disk, folder.instance
        self._head = self._kept = Head(recovered.next_seq - 1, recovered.head)
        self._keep = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def append(
        self,
        at: Instant,
        drafts: Sequence[Draft],
        apply: Callable[[Record, tuple[bytes, ...]], None] = lambda _record, _payloads: None,
    ) -> tuple[Record, ...]:
        """Seal the drafts at the end of the chain, give each record to `apply`, and queue them, without waiting.

        Raises Fatal once writing has failed or the journal is closed, Malformed for a draft beyond the format's sizes;
        then nothing of this call is queued. Where `apply` fails, what it told may be half true, and what it could not
        take would stop the next start too: so it is not written, and the journal stops.
        """
        self._raise_if_stopped()
        if self._closed:
            raise Fatal("the journal is closed")
        sealed = self._sealer.seal(at, drafts)
        try:
            for record, draft in zip(sealed.records, drafts, strict=True):
                apply(record, draft.payloads)
        except Exception as error:
            self._stop(Fatal(f"a decision could not be applied: {error!r}"))
            raise Fatal("a decision could not be applied") from error
        if sealed.records:
            self._queue.put(sealed)
        return tuple(sealed.records)

    def durable(self) -> Awaitable[None]:
        """Done when all that was appended before this call is on disk; raises Fatal when writing failed.

        Each call has a future of its own: to cancel one disturbs neither the write nor other waiters.
        """
        self._raise_if_stopped()
        waiter: asyncio.Future[None] = self._loop.create_future()
        newest = self._sealer.next_seq - 1
        if newest == self._durable_seq:
            waiter.set_result(None)
        else:
            self._waiters.append((newest, waiter))
        return waiter

    def keep_head(self) -> None:
        """Have the newest record's digest written down beside the journal, once that record is durable."""
        if not self._closed:
            self._queue.put("keep")

    @property
    def head(self) -> Head:
        """The newest record that is durable."""
        return self._head

    async def close(self) -> None:
        """Write what is queued, then let go of the files. Whether that worked, waiters and on_stopped are told."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _raise_if_stopped(self) -> None:
        if self._stopped is not None:
            raise _again(self._stopped)

    # On the writer's thread.

    def _run(self) -> None:
        try:
            while (batch := self._batch()) is not None:
                self._write(batch)
                if self._keep:
                    self._write_head()
            self._write_head()
        except OSError as error:
            self._loop.call_soon_threadsafe(self._stop, refusal("write to the journal", self._where, error))
        except Exception as error:  # whatever it was: nobody may wait for ever, and nothing more may be written
            self._loop.call_soon_threadsafe(self._stop, Fatal(f"the journal's writer failed: {error!r}"))
        for tail in (self._payloads, self._records):
            with suppress(OSError):  # what could be lost here was synced, or has been told as failed
                tail.close()
        self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def _write(self, batch: list[Sealed]) -> None:
        if not batch:
            return
        self._payloads.write(piece for sealed in batch for piece in sealed.payload_pieces)
        self._records.write(piece for sealed in batch for piece in sealed.record_pieces)
        self._head = batch[-1].head
        records = tuple([record for sealed in batch for record in sealed.records])
        self._loop.call_soon_threadsafe(self._landed, records)

    def _write_head(self) -> None:
        self._keep = False
        if self._head != self._kept:
            head.keep(self._disk, self._where, self._instance, self._head)
            self._kept = self._head

    def _batch(self) -> list[Sealed] | None:
        """Everything that is queued; None when the journal was closed and all is written."""
        batch: list[Sealed] = []
        while not (batch or self._keep) or not self._queue.empty():
            item = self._queue.get()
            if item is None:
                if not batch:
                    return None
                self._queue.put(None)  # the next call, after this batch, finds it first
                break
            if item == "keep":
                self._keep = True
            else:
                batch.append(item)
        return batch

    # On the event loop.

    def _landed(self, records: tuple[Record, ...]) -> None:
        self._durable_seq = records[-1].seq
        try:
            self._on_durable(records)
        finally:
            while self._waiters and self._waiters[0][0] <= self._durable_seq:
                waiter = self._waiters.popleft()[1]
                if not waiter.done():
                    waiter.set_result(None)

    def _stop(self, why: Fatal) -> None:
        if self._stopped is not None:
            return
        self._stopped = why
        while self._waiters:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_exception(_again(why))
        self._on_stopped(why)


def _again(why: Fatal) -> Fatal:
    """A copy for one more caller: an exception that many tasks raise would collect all their tracebacks."""
    return Fatal(why.why, hint=why.hint)
