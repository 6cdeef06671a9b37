"""A start from a snapshot knows what a start that reads everything knows, wherever in history the snapshot was made."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker import restart
from broker.errors import Damaged
from broker.journal import inspect, segments, snapshot
from broker.journal.disk import RealDisk
from broker.journal.state import JOURNAL, PAYLOADS, StateFolder
from broker.rules import image
from broker.rules.image import Image
from broker.wire.names import Digest
from broker.wire.records import ClockAccepted
from tests.journal import setting
from tests.proof.test_every_call import STORIES, told_whole

DISK = RealDisk()


def start(state: Path) -> Image:
    """What a daemon would know, bytes and all."""
    with StateFolder.open(state, setting.DEMO) as folder:
        book, _ = restart.read(folder, DISK)
    assert all(directive.statement and directive.signature for directive in book.directives.values())
    assert all(signed.statement and signed.signature for signed in book.ledger.signed())
    return image.of(book)


def last_segment(state: Path) -> int:
    return snapshot.closed(DISK, state)


def copy(state: Path, to: Path, record_segments: int) -> Path:
    """As the folder was when it had so many record segments; its payloads were written first, so more may be there."""
    shutil.copytree(state, to)
    for number in range(record_segments + 1, last_segment(to) + 1):
        (to / JOURNAL / segments.name(number)).unlink()
    return to


@pytest.fixture(params=STORIES, ids=["directives", "authority"])
async def lived(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A state folder in which every kind of thing has happened, in small segments, on the real disk."""
    with StateFolder.create(tmp_path / "lived", setting.DEMO) as folder:
        life = await told_whole(folder, kind=request.param)
        for place in (folder.path, folder.journal, folder.payloads):
            for name in life.disk.names(place):
                fd = life.disk.read(place / name)
                (place / name).write_bytes(life.disk.read_at(fd, 0, life.disk.size(place / name)))
                life.disk.close(fd)
    (tmp_path / "lived" / snapshot.NAME).unlink(missing_ok=True)
    assert last_segment(tmp_path / "lived") > 5
    return tmp_path / "lived"


def taken_at_each(lived: Path, tmp_path: Path) -> Iterator[Path]:
    """The whole folder with a snapshot made when it had two record segments, three, and so on."""
    for count in range(2, last_segment(lived) + 1):
        early, whole = copy(lived, tmp_path / f"early-{count}", count), tmp_path / f"whole-{count}"
        assert restart.take_snapshot(early, DISK) is not None
        shutil.copytree(lived, whole)
        shutil.copy(early / snapshot.NAME, whole)
        yield whole


@pytest.mark.promise("P5")
async def test_a_start_from_any_snapshot_knows_the_same(lived: Path, tmp_path: Path) -> None:
    everything, tried = start(lived), 0
    for whole in taken_at_each(lived, tmp_path):
        assert start(whole) == everything
        assert inspect.verify(whole).problems == ()
        tried += 1
    assert tried > 4


async def test_a_snapshot_made_from_a_snapshot_is_the_same(lived: Path, tmp_path: Path) -> None:
    at_once = copy(lived, tmp_path / "at-once", 5)
    lived = copy(lived, tmp_path / "before-the-clock-was-set", 5)
    assert not any(isinstance(record.fact, ClockAccepted) for record in inspect.walk(lived))
    restart.take_snapshot(at_once, DISK)
    for whole in taken_at_each(lived, tmp_path):
        restart.take_snapshot(whole, DISK)
        assert (whole / snapshot.NAME).read_bytes() == (at_once / snapshot.NAME).read_bytes()


async def test_what_a_snapshot_covers_is_not_read_again(lived: Path) -> None:
    made = restart.take_snapshot(lived, DISK)
    assert made
    behind = [record.fact for record in inspect.walk(lived) if record.seq > made.seq]
    assert not any(isinstance(fact, ClockAccepted) for fact in behind), "or all would be read"
    known, covered = start(lived), lived / JOURNAL / segments.name(2)
    covered.write_bytes(covered.read_bytes()[:-1] + b"x")
    assert f"{JOURNAL}/{segments.name(2)}" in [problem.file for problem in inspect.verify(lived).problems]
    assert start(lived) == known


@pytest.mark.promise("P5")
@pytest.mark.parametrize("gone", [f"{JOURNAL}/{segments.name(1)}", f"{JOURNAL}/{segments.name(3)}"])
async def test_a_segment_that_a_snapshot_covers_has_to_be_there(lived: Path, gone: str) -> None:
    restart.take_snapshot(lived, DISK)
    (lived / gone).unlink()
    with pytest.raises(Damaged, match=r"snapshot.cbor does not fit"):
        start(lived)


@pytest.mark.promise("P5")
async def test_a_snapshot_of_a_longer_journal_is_refused(lived: Path, tmp_path: Path) -> None:
    restart.take_snapshot(lived, DISK)
    older = copy(lived, tmp_path / "older", 3)
    with pytest.raises(Damaged):
        start(older)


@pytest.mark.promise("P5")
async def test_a_snapshot_of_another_journal_is_refused(lived: Path) -> None:
    made = restart.take_snapshot(lived, DISK)
    assert made
    snapshot.write(DISK, lived, replace(made, head=Digest(b"x" * 32)))
    with pytest.raises(Damaged, match="a segment that begins with record"):
        start(lived)
    assert [problem.file for problem in inspect.verify(lived).problems] == [snapshot.NAME]


@pytest.mark.promise("P5")
async def test_every_altered_byte_of_a_snapshot_is_found(lived: Path) -> None:
    restart.take_snapshot(lived, DISK)
    path = lived / snapshot.NAME
    raw = path.read_bytes()
    for at in [*range(0, len(raw), 997), len(raw) - 1]:
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(Damaged, match=r"lever|snapshot"):
            start(lived)
        assert [problem.file for problem in inspect.verify(lived).problems] == [snapshot.NAME]
    for size in (0, 1, 31, 32, len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(Damaged):
            start(lived)
    path.unlink()
    start(lived)


async def test_a_half_written_snapshot_is_a_leftover(lived: Path) -> None:
    (lived / f"{snapshot.NAME}.new").write_bytes(b"half")
    start(lived)
    assert not (lived / f"{snapshot.NAME}.new").exists()


async def test_there_is_nothing_to_cover_in_one_segment(lived: Path, tmp_path: Path) -> None:
    assert restart.take_snapshot(copy(lived, tmp_path / "young", 1), DISK) is None


async def test_the_story_has_a_clock_that_was_set_back(lived: Path) -> None:
    assert any(isinstance(record.fact, ClockAccepted) for record in inspect.walk(lived))
    assert (lived / PAYLOADS).exists()
