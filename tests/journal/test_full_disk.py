"""Real file systems that are full or read-only. They take a mount, and so root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.errors import Fatal
from broker.journal.state import StateFolder
from broker.wire.records import Record
from tests.journal import setting
from tests.journal.setting import DEMO

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs takes root"),
]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no mounts here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(place: Path, *, leave_bytes: int = 0) -> Path:
    """Use up all space but so much."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                break
    os.truncate(filler, filler.stat().st_size - leave_bytes)
    return filler


@pytest.mark.promise("P28", "P29")
async def test_a_disk_that_fills_up_stops_the_journal_and_keeps_what_it_acknowledged(small: Path) -> None:
    acknowledged: list[Record] = []

    async def write_for_ever(desk: setting.Desk) -> None:
        while True:
            acknowledged.append(await desk.put(f"{len(acknowledged)}", b"x" * 1000))

    with setting.new_state(small / "state") as folder:
        filler = fill(small, leave_bytes=40_960)
        async with setting.writing(folder) as desk:
            with pytest.raises(Fatal) as caught:
                await write_for_ever(desk)
            assert "No space left on device" in caught.value.why
            assert "free space" in caught.value.hint
            with pytest.raises(Fatal, match="No space left"):
                desk.writer.append(setting.LATER, [setting.draft("more")])
        assert [record for batch in desk.landed for record in batch] == acknowledged
        assert len(acknowledged) > 5
        filler.unlink()
        async with setting.writing(folder) as desk:  # with space again, it goes on
            await desk.put("again")
        records = setting.read(folder)[1]
    assert records[1 : 1 + len(acknowledged)] == acknowledged
    assert setting.word(records[-1]) == "again"


async def test_a_full_disk_at_the_start_is_told_and_harms_nothing(small: Path) -> None:
    with setting.new_state(small / "state") as folder:
        state = folder.path
    (state / "lock.pid").unlink()
    filler = fill(small)
    with pytest.raises(Fatal, match="No space left on device") as caught:
        StateFolder.open(state, DEMO)
    assert "free space" in caught.value.hint
    filler.unlink()
    assert len(setting.read_again(state)[1]) == 1


def test_a_full_disk_leaves_no_half_made_state_folder_that_starts(small: Path) -> None:
    filler = fill(small)
    with pytest.raises(Fatal, match="No space left on device"), setting.new_state(small / "state"):
        pass
    filler.unlink()
    with pytest.raises(Fatal):
        setting.read_again(small / "state")


def test_a_read_only_file_system_is_told(small: Path) -> None:
    with setting.new_state(small / "state") as folder:
        state = folder.path
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with pytest.raises(Fatal, match="Read-only file system") as caught:
        StateFolder.open(state, DEMO)
    assert "mounted read-only" in caught.value.hint
