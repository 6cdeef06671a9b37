"""A power cut or kill -9 at any moment: what was acknowledged is there, what is there was appended, and it goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest

from broker.errors import Fatal
from broker.journal.state import StateFolder
from tests.fakes.fake_disk import FakeDisk, PowerCutError, at_most
from tests.journal import setting
from tests.journal.setting import LATER, draft, word

SEGMENT_BYTES = 300
NAMES = [f"{number}" for number in range(8)]
TURNS = (NAMES[:2], NAMES[2:3], NAMES[3:6], NAMES[6:7], NAMES[7:])


def payloads_of(name: str) -> tuple[bytes, ...]:
    return (b"statement " * int(name), b"signature")[: int(name) % 3]


async def write_until_the_power_goes(folder: StateFolder, disk: FakeDisk) -> list[str]:
    """Append one after the other, some together; the names that were acknowledged."""
    acknowledged: list[str] = []
    async with setting.writing(folder, disk, SEGMENT_BYTES) as desk:
        try:
            for names in TURNS:
                desk.writer.append(LATER, [draft(name, *payloads_of(name)) for name in names])
                await desk.writer.durable()
                acknowledged += names
        except Fatal:
            assert desk.words() == acknowledged
    return acknowledged


def read_names(folder: StateFolder, disk: FakeDisk, turns: tuple[list[str], ...] = TURNS) -> list[str]:
    """Recover; what is there is an unbroken beginning of what was appended, turns whole, bytes and all."""
    recovered, records = setting.read(folder, disk)
    names = [word(record) for record in records[1:]]
    assert names in [NAMES[:end] for end in accumulate(map(len, turns), initial=0)]
    for record in records[1:]:
        assert tuple(recovered.read_payload(ref) for ref in record.payloads) == payloads_of(word(record))
    return names


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    """A state folder whose journal lies on fake disks."""
    with StateFolder.create(tmp_path / "state", setting.DEMO) as made:
        return made


async def test_the_story_to_interrupt_makes_segments_of_both_kinds(folder: StateFolder) -> None:
    disk = setting.fake_journal(folder)
    assert await write_until_the_power_goes(folder, disk) == NAMES
    assert read_names(folder, disk) == NAMES
    assert len(disk.names(folder.journal)) >= 3
    assert len(disk.names(folder.payloads)) >= 2


@pytest.mark.promise("P4", "P5", "P28")
@pytest.mark.parametrize("names_kept", [False, True], ids=["names lost", "names kept"])
async def test_a_power_cut_at_every_call_loses_nothing_acknowledged(folder: StateFolder, names_kept: bool) -> None:
    whole = setting.fake_journal(folder)
    created = len(whole.calls)
    await write_until_the_power_goes(folder, whole)
    for at in range(created + 1, len(whole.calls) + 1):
        disk = setting.fake_journal(folder)
        disk.faults = {at: PowerCutError()}
        acknowledged = await write_until_the_power_goes(folder, disk)
        for kept in (0, 1, 7, 100, 300, 1 << 20):
            after = disk.crash(at_most(kept), names_kept=names_kept)
            names = read_names(folder, after)
            assert names[: len(acknowledged)] == acknowledged
            async with setting.writing(folder, after, SEGMENT_BYTES) as desk:
                for name in NAMES[len(names) :]:
                    await desk.put(name, *payloads_of(name))
            assert read_names(folder, after) == NAMES


@pytest.mark.promise("P5")
async def test_a_power_cut_while_a_torn_tail_is_cut(folder: StateFolder) -> None:
    disk = setting.fake_journal(folder)
    async with setting.writing(folder, disk) as desk:
        await desk.put(NAMES[0], *payloads_of(NAMES[0]))
        disk.faults = {len(disk.calls) + 1: PowerCutError()}
        with pytest.raises(Fatal):
            await desk.put(NAMES[1], *payloads_of(NAMES[1]))
    for at in (1, 2):
        torn = disk.crash(at_most(20), names_kept=True)
        torn.faults = {at: PowerCutError()}
        with pytest.raises(PowerCutError):
            setting.read(folder, torn)
        for kept in (0, 1 << 20):
            left = torn.crash(at_most(kept), names_kept=True)
            assert read_names(folder, left, (NAMES[:1], NAMES[1:2])) == NAMES[:1]


WRITE = """
import asyncio, sys
from pathlib import Path
from broker.journal.state import StateFolder
from tests.journal import setting

async def main():
    with StateFolder.open(Path(sys.argv[1]), setting.DEMO) as folder:
        async with setting.writing(folder, segment_bytes=3000) as desk:
            async def caller(name):
                for number in range(1_000_000):
                    record = await desk.put(f"{name}-{number}", b"bytes of " + name.encode())
                    print(record.seq, record.fact.id, flush=True)
            await asyncio.gather(*(caller(name) for name in "abcd"))

asyncio.run(main())
"""


@pytest.mark.promise("P4")
@pytest.mark.parametrize("lines", [1, 50, 400])
def test_kill_9_of_a_writing_process_loses_nothing_it_acknowledged(tmp_path: Path, lines: int) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        state = folder.path
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", WRITE, str(state)], stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout
        said = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    acknowledged = [line.decode().split() for line in said if line.endswith(b"\n")]
    assert len(acknowledged) >= lines
    recovered, records = setting.read_again(state)
    there = {record.seq: record for record in records}
    for seq, name in acknowledged:
        record = there[int(seq)]
        assert word(record) == name
        assert recovered.read_payload(record.payloads[0]) == b"bytes of " + name[0].encode()
