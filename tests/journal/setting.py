"""A small journal to break: made, written and read through the room's own doors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from broker.errors import Fatal
from broker.journal import head, inspect
from broker.journal.create import create
from broker.journal.disk import Disk, RealDisk
from broker.journal.head import Head
from broker.journal.recovery import Recovered, recover
from broker.journal.segments import SEGMENT_BYTES
from broker.journal.state import StateFolder
from broker.journal.writer import JournalWriter
from broker.wire import record_codec
from broker.wire.names import Cn, Digest, DirectiveId, Generation, Instance, Instant
from broker.wire.records import DirectiveConsumed, Draft, Record
from tests.fakes.fake_disk import FakeDisk

DEMO = Instance("demo")
CA_DIGEST = Digest(bytes(range(32)))
CREATED_AT = Instant(1_767_225_600_000_000)
LATER = Instant(CREATED_AT + 1_000_000)


def draft(word: str, *payloads: bytes) -> Draft:
    """A fact that carries a word to know it by."""
    fact = DirectiveConsumed(DirectiveId(word), Cn("worker-a"), Generation(1), Digest(bytes(32)), "")
    return Draft(fact, payloads)


def word(record: Record) -> str:
    """What `draft` was given, or the kind of another fact."""
    return record.fact.id if isinstance(record.fact, DirectiveConsumed) else type(record.fact).__name__


@contextmanager
def new_state(path: Path, disk: Disk | None = None) -> Iterator[StateFolder]:
    """A state folder with the first record in it, held."""
    with StateFolder.create(path, DEMO) as folder:
        create(folder, disk or RealDisk(), CA_DIGEST, CREATED_AT)
        yield folder


def empty_disk(folder: StateFolder) -> FakeDisk:
    """A fake disk with a state folder's places and nothing in them."""
    return FakeDisk([folder.path, folder.journal, folder.payloads])


def fake_journal(folder: StateFolder) -> FakeDisk:
    """A fake disk with a new journal on it."""
    disk = empty_disk(folder)
    create(folder, disk, CA_DIGEST, CREATED_AT)
    return disk


def read(folder: StateFolder, disk: Disk | None = None) -> tuple[Recovered, list[Record]]:
    """Recover, and the records that were there."""
    records: list[Record] = []
    return recover(folder, disk or RealDisk(), records.append), records


def read_again(state: Path) -> tuple[Recovered, list[Record]]:
    """Recover a folder that nobody holds."""
    with StateFolder.open(state, DEMO) as folder:
        return read(folder)


@dataclass
class Desk:
    """A writer and what it told: the batches that landed, and why it stopped."""

    writer: JournalWriter
    landed: list[tuple[Record, ...]]
    stopped: list[Fatal] = field(default_factory=list)

    def words(self) -> list[str]:
        """The records told as durable, in order."""
        return [word(record) for batch in self.landed for record in batch]

    async def put(self, name: str, *payloads: bytes) -> Record:
        """Append one and wait for it."""
        (record,) = self.writer.append(LATER, [draft(name, *payloads)])
        await self.writer.durable()
        return record


@asynccontextmanager
async def writing(
    folder: StateFolder, disk: Disk | None = None, segment_bytes: int = SEGMENT_BYTES
) -> AsyncIterator[Desk]:
    """Recover and write; closed at the end."""
    disk = disk or RealDisk()
    landed: list[tuple[Record, ...]] = []
    stopped: list[Fatal] = []
    recovered, _ = read(folder, disk)
    writer = JournalWriter(
        folder, disk, recovered, on_durable=landed.append, on_stopped=stopped.append, segment_bytes=segment_bytes
    )
    try:
        yield Desk(writer, landed, stopped)
    finally:
        await writer.close()


def forget_head(state: Path) -> None:
    """As if the journal had been written since its head was last kept: what is cut off its end is not missed."""
    first = next(iter(inspect.walk(state)))
    digest = Digest(sha256(record_codec.encode(first)).digest())
    head.keep(RealDisk(), state, DEMO, Head(1, digest))


async def small_journal(state: Path) -> Path:
    """Two record segments and two payload segments, some frames behind each header; the folder's path."""
    with new_state(state) as folder:
        async with writing(folder) as desk:
            await desk.put("a", b"statement", b"signature")
            await desk.put("b")
        full = read(folder)[0]
        async with writing(folder, segment_bytes=full.payloads_end.offset) as desk:
            await desk.put("c", b"second", b"")  # both folders go on to their second segment
        async with writing(folder) as desk:
            await desk.put("d", b"last")
            await desk.put("e")
    return state
