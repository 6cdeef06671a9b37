"""The journal in memory is one: what the real writer makes of the same drafts, and whom it lets wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.errors import Fatal
from broker.wire.records import Record
from tests.journal import setting
from tests.journal.setting import LATER, draft
from tests.model.memory_journal import MemoryJournal

APPENDS = [[draft("one", b"bytes", b"")], [draft("two"), draft("three", b"more")], []]


def told(append: Callable[..., object]) -> list[tuple[object, ...]]:
    """What `apply` is given for each draft."""
    seen: list[tuple[object, ...]] = []

    def apply(record: Record, payloads: tuple[bytes, ...]) -> None:
        refs = [(ref.digest, ref.length) for ref in record.payloads]
        seen.append((record.at, record.fact, refs, payloads, record.rest, record.seq))

    for drafts in APPENDS:
        before = len(seen)
        append(LATER, drafts, apply)
        assert len(seen) == before + len(drafts), "applied before append returns"
    first = seen[0][-1]
    assert isinstance(first, int)
    return [(*rest, seq - first) for *rest, seq in seen]  # type: ignore[operator]


async def test_it_seals_and_applies_as_the_real_writer_does(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder) as desk:
            assert told(MemoryJournal().append) == told(desk.writer.append)
            await desk.writer.durable()


def wait(journal: MemoryJournal) -> bool:
    """Does somebody who waits now go on at once?"""
    waiting = journal.durable().__await__()
    try:
        next(iter(waiting))
    except StopIteration:
        return True
    return False


def nothing(record: Record, payloads: tuple[bytes, ...]) -> None:
    """An `apply` that takes all."""


def test_who_waits_goes_on_when_all_before_is_durable_and_not_earlier() -> None:
    journal = MemoryJournal()
    assert wait(journal)
    journal.append(LATER, APPENDS[1], nothing)
    assert not wait(journal)
    journal.sync(1)
    assert not wait(journal)
    journal.sync()
    assert wait(journal)


@pytest.mark.parametrize(("durable", "read"), [(0, 0), (1, 1), (2, 1), (3, 3)])
def test_a_start_reads_whole_turns(durable: int, read: int) -> None:
    journal = MemoryJournal()
    for drafts in APPENDS:
        journal.append(LATER, drafts, nothing)
    journal.sync(durable)
    assert len(journal.kept) == read


async def test_an_apply_that_fails_stops_both(tmp_path: Path) -> None:
    def fails(record: Record, payloads: tuple[bytes, ...]) -> None:
        raise ValueError

    def stops(append: Callable[..., object]) -> None:
        with pytest.raises(Fatal):
            append(LATER, [draft("one")], fails)
        with pytest.raises(Fatal):
            append(LATER, [draft("two")], nothing)

    memory = MemoryJournal()
    stops(memory.append)
    assert not memory.records
    with pytest.raises(Fatal):
        memory.durable()
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder) as desk:
            stops(desk.writer.append)
            with pytest.raises(Fatal):
                desk.writer.durable()
