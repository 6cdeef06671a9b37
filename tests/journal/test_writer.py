"""Nothing is acknowledged before it is on the disk, and nothing is acknowledged after the disk has refused once."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.errors import Fatal, Malformed
from broker.journal.state import StateFolder
from broker.journal.writer import JournalWriter
from broker.wire import frame
from broker.wire.records import DirectivesExpired, Draft, Record
from tests.fakes.fake_disk import FakeDisk, Fault, Hold, Short
from tests.journal import decoder, setting
from tests.journal.setting import LATER, Desk, draft, word


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    """A state folder whose journal lies on a fake disk; its lock is of no interest here."""
    with StateFolder.create(tmp_path / "state", setting.DEMO) as made:
        return made


def broken(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@dataclass
class Stage(Desk):
    """A writer on a fake disk."""

    disk: FakeDisk = field(default_factory=lambda: FakeDisk([]))

    def fail_next(self, **faults: Fault) -> None:
        """What happens at the n-th changing call from now: `n1=..., n2=...`."""
        self.disk.faults = {len(self.disk.calls) + int(name[1:]): fault for name, fault in faults.items()}


@asynccontextmanager
async def on_fake(folder: StateFolder, segment_bytes: int = 1 << 20) -> AsyncIterator[Stage]:
    disk = setting.fake_journal(folder)
    async with setting.writing(folder, disk, segment_bytes) as desk:
        yield Stage(desk.writer, desk.landed, desk.stopped, disk)


async def held(desk: Stage, first: str = "first") -> tuple[Hold, Awaitable[None]]:
    """One record in a sync that does not return, and who waits for it."""
    hold = desk.disk.hold_syncs()
    desk.writer.append(LATER, [draft(first)])
    waiter = desk.writer.durable()
    await asyncio.to_thread(hold.until_reached)
    return hold, waiter


async def done(waiter: Awaitable[None]) -> str:
    """How a wait ended."""
    try:
        await waiter
    except Fatal as error:
        return f"fatal: {error.why}"
    except asyncio.CancelledError:
        return "cancelled"
    return "durable"


@pytest.mark.promise("P4")
async def test_what_was_acknowledged_is_read_by_the_next_start(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder) as desk:
            one = await desk.put("one", b"bytes", b"")
            two, three = desk.writer.append(LATER, [draft("two"), draft("three", b"more")])
            await desk.writer.durable()
        recovered, records = setting.read(folder)
        assert records[1:] == [one, two, three]
        assert [recovered.read_payload(ref) for record in records for ref in record.payloads] == [
            b"bytes",
            b"",
            b"more",
        ]
    assert desk.words() == ["one", "two", "three"]
    assert [record[1] for record in decoder.records(folder.path)] == [1, 2, 3, 4]


@pytest.mark.promise("P28")
async def test_payloads_are_synced_before_the_record_that_names_them_is_written(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        before = len(desk.disk.calls)
        await desk.put("plain")
        assert desk.disk.calls[before:] == ["write", "sync"]
        await desk.put("with bytes", b"a", b"b")
        assert desk.disk.calls[before + 2 :] == ["write", "sync", "write", "sync"]


@pytest.mark.promise("P28")
async def test_nobody_goes_on_while_the_sync_has_not_returned(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        hold, waiter = await held(desk)
        asyncio.get_running_loop().call_soon(hold.release)
        assert desk.landed == []
        assert await done(waiter) == "durable"
        assert desk.words() == ["first"]


async def test_callers_that_come_during_a_sync_share_the_next_one(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        before = len(desk.disk.calls)
        hold, waiter = await held(desk)
        for number in range(16):
            desk.writer.append(LATER, [draft(str(number))])
        waiters = [waiter, *(desk.writer.durable() for _ in range(16))]
        hold.release()
        assert [await done(one) for one in waiters] == ["durable"] * 17
        assert desk.disk.calls[before:] == ["write", "sync"] * 2
        assert [len(batch) for batch in desk.landed] == [1, 16]


async def test_many_callers_at_once_each_get_their_own_and_all_is_in_order(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder, segment_bytes=4000) as desk:
            await asyncio.gather(*(desk.put(f"{one}-{two}", b"p") for one in range(16) for two in range(10)))
        records = setting.read(folder)[1][1:]
        assert [record for batch in desk.landed for record in batch] == records
        assert [record.seq for record in records] == list(range(2, 162))


@pytest.mark.promise("P28")
async def test_the_records_are_told_before_those_who_wait_go_on(folder: StateFolder) -> None:
    order: list[str] = []
    disk = setting.fake_journal(folder)
    recovered, _ = setting.read(folder, disk)

    def told(records: tuple[Record, ...]) -> None:
        order.extend(word(record) for record in records)

    async def put(writer: JournalWriter, name: str) -> None:
        writer.append(LATER, [draft(name)])
        await writer.durable()
        order.append(f"{name} released")

    writer = JournalWriter(folder, disk, recovered, on_durable=told, on_stopped=lambda why: None)
    await asyncio.gather(put(writer, "a"), put(writer, "b"))
    await writer.close()
    for name in ("a", "b"):
        assert order.index(name) < order.index(f"{name} released")
        assert order.count(name) == 1


async def test_a_cancelled_waiter_disturbs_neither_the_write_nor_the_others(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        hold, waiter = await held(desk)
        tasks = [asyncio.create_task(desk.put(str(number))) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        hold.release()
        await waiter
        assert [word(await tasks[number]) for number in (0, 2)] == ["0", "2"]
        assert desk.words() == ["first", "0", "1", "2"]
        assert (await desk.put("after")).seq == 6


async def test_the_same_when_the_disk_then_refuses(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        hold, before = await held(desk)
        task = asyncio.create_task(desk.put("given up"))
        await asyncio.sleep(0)
        task.cancel()
        after = desk.writer.durable()
        desk.fail_next(n1=broken(errno.EIO))
        hold.release()
        assert [(await done(waiter))[:6] for waiter in (before, after)] == ["fatal:"] * 2
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(desk.stopped) == 1


async def test_with_nothing_queued_there_is_nothing_to_wait_for(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        waiter = desk.writer.durable()
        assert isinstance(waiter, asyncio.Future)
        assert waiter.done()
        assert desk.writer.append(LATER, []) == ()
        await desk.writer.durable()
        assert desk.landed == []


async def test_one_waits_for_what_was_appended_before_and_for_nothing_later(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        hold, waiter = await held(desk)
        desk.writer.append(LATER, [draft("later")])
        desk.fail_next(n2=broken(errno.EIO))  # the sync that is held is the first call
        hold.release()
        assert await done(waiter) == "durable"
        assert desk.words() == ["first"]


FAILURES: list[tuple[str, dict[str, Fault]]] = [
    ("the records' write", {"n3": broken(errno.EIO)}),
    ("the records' sync", {"n4": broken(errno.EIO)}),
    ("the payloads' write", {"n1": broken(errno.EIO)}),
    ("the payloads' sync", {"n2": broken(errno.EIO)}),
    ("a disk that fills up", {"n3": Short(7), "n4": broken(errno.ENOSPC)}),
    ("a disk that fills up with payloads", {"n1": Short(0), "n2": broken(errno.ENOSPC)}),
    ("a quota", {"n3": broken(errno.EDQUOT)}),
]


@pytest.mark.promise("P28")
@pytest.mark.parametrize("faults", [case[1] for case in FAILURES], ids=[case[0] for case in FAILURES])
async def test_after_one_refusal_of_the_disk_nothing_is_acknowledged(
    folder: StateFolder, faults: dict[str, Fault]
) -> None:
    async with on_fake(folder) as desk:
        await desk.put("good", b"x")
        desk.fail_next(**faults)
        desk.writer.append(LATER, [draft("lost", b"x")])
        waiters = [desk.writer.durable() for _ in range(3)]
        ends = [await done(waiter) for waiter in waiters]
        error = next(fault for fault in faults.values() if isinstance(fault, OSError))
        assert ends == [f"fatal: cannot write to the journal in {folder.path}: {error.strerror}"] * 3
        for call in (desk.writer.durable, lambda: desk.writer.append(LATER, [draft("never")])):
            with pytest.raises(Fatal, match="cannot write"):
                call()
        calls = len(desk.disk.calls)
        await desk.writer.close()
        assert len(desk.disk.calls) == calls, "nothing is tried again"
        assert desk.words() == ["good"]
        assert [why.why for why in desk.stopped] == [ends[0].removeprefix("fatal: ")]
        assert ("free space" in desk.stopped[0].hint) == (error.errno != errno.EIO)
        recovered, records = setting.read(folder, desk.disk)  # the next start reads what was really written
        assert [word(record) for record in records][:2] == ["InstanceCreated", "good"]
        assert recovered.next_seq == len(records) + 1


@pytest.mark.promise("P28")
async def test_what_was_queued_behind_a_refused_batch_is_refused_with_it(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        hold, first = await held(desk)
        desk.writer.append(LATER, [draft("behind")])
        second = desk.writer.durable()
        desk.fail_next(n1=broken(errno.EIO))
        hold.release()
        assert {(await done(first))[:6], (await done(second))[:6]} == {"fatal:"}
        assert desk.landed == []
        assert desk.disk.calls[-1] == "sync"


@pytest.mark.promise("P28")
@pytest.mark.parametrize("at", range(1, 8))
async def test_a_refusal_while_a_segment_is_made_stops_the_journal_too(folder: StateFolder, at: int) -> None:
    async with on_fake(folder, segment_bytes=1) as desk:
        before = len(desk.disk.calls)
        desk.fail_next(**{f"n{at}": broken(errno.ENOSPC)})
        desk.writer.append(LATER, [draft("lost")])
        assert (await done(desk.writer.durable())).startswith("fatal")
        assert desk.landed == []
        made = ["create", "write", "sync", "rename", "sync_dir", "write", "sync"]
        assert desk.disk.calls[before:] == made[:at]


async def test_short_writes_are_continued_where_they_ended(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        desk.fail_next(n1=Short(1), n2=Short(50), n3=Short(3))
        await desk.put("whole")
        assert desk.words() == ["whole"]
        assert word(setting.read(folder, desk.disk)[1][-1]) == "whole"


async def test_a_fault_of_the_program_on_the_writers_thread_leaves_nobody_waiting(folder: StateFolder) -> None:
    def fault() -> None:
        raise ZeroDivisionError

    async with on_fake(folder) as desk:
        desk.disk.at_sync = fault
        desk.writer.append(LATER, [draft("lost")])
        assert "ZeroDivisionError" in await done(desk.writer.durable())
        assert len(desk.stopped) == 1


async def test_what_can_not_be_applied_is_not_written_and_nothing_is_after_it(folder: StateFolder) -> None:
    def apply(record: Record, payloads: tuple[bytes, ...]) -> None:
        raise KeyError(record.seq)

    async with on_fake(folder) as desk:
        hold, before = await held(desk)
        with pytest.raises(Fatal, match="could not be applied"):
            desk.writer.append(LATER, [draft("bad", b"x")], apply)
        with pytest.raises(Fatal, match="could not be applied"):
            desk.writer.append(LATER, [draft("after")])
        assert (await done(before))[:6] == "fatal:", "what was told may rest on what is half applied"
        hold.release()
        await desk.writer.close()
        assert len(desk.stopped) == 1
    assert [word(record) for record in setting.read(folder, desk.disk)[1]] == ["InstanceCreated", "first"]


async def test_a_draft_beyond_the_formats_sizes_is_refused_alone(folder: StateFolder) -> None:
    fact = DirectivesExpired(tuple("x" * 64 for _ in range(20_000)))
    async with on_fake(folder) as desk:
        for too_large in (Draft(fact), draft("big", bytes(frame.MAX_FRAME_BYTES + 1))):
            with pytest.raises(Malformed, match="beyond"):
                desk.writer.append(LATER, [draft("beside", b"x"), too_large])
        assert (await desk.put("after", b"y")).seq == 2
        recovered, records = setting.read(folder, desk.disk)
        assert [word(record) for record in records] == ["InstanceCreated", "after"]
        assert recovered.read_payload(records[1].payloads[0]) == b"y"


async def test_close_writes_what_is_queued_and_then_takes_nothing_more(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        hold, first = await held(desk)
        desk.writer.append(LATER, [draft("queued")])
        last = desk.writer.durable()
        closing = [asyncio.create_task(desk.writer.close()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Fatal, match="closed"):
            desk.writer.append(LATER, [draft("too late")])
        hold.release()
        await asyncio.gather(*closing)
        assert [await done(first), await done(last)] == ["durable"] * 2
        await desk.writer.durable()
        assert desk.words() == ["first", "queued"]
        assert desk.disk.open_files() == 0


async def test_close_can_be_given_up_and_called_again(folder: StateFolder) -> None:
    async with on_fake(folder) as desk:
        hold, waiter = await held(desk)
        closing = asyncio.create_task(desk.writer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        hold.release()
        await desk.writer.close()
        assert await done(waiter) == "durable"


async def test_who_listens_may_fail_and_those_who_wait_still_go_on(folder: StateFolder) -> None:
    disk = setting.fake_journal(folder)
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context["exception"]))

    def told(records: tuple[Record, ...]) -> None:
        raise ValueError(len(records))

    recovered, _ = setting.read(folder, disk)
    writer = JournalWriter(folder, disk, recovered, on_durable=told, on_stopped=lambda why: None)
    writer.append(LATER, [draft("a")])
    assert await done(writer.durable()) == "durable"
    await writer.close()
    assert [type(fault) for fault in faults] == [ValueError]
