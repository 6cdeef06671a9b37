"""Payloads past their retention are dropped, whole segments at a time; no record ever is, and nothing else may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.errors import Damaged
from broker.journal import inspect, payloads, segments
from broker.journal.disk import RealDisk
from broker.journal.state import PAYLOADS, StateFolder
from broker.wire.records import Draft, PayloadsDropped
from tests.journal import setting
from tests.journal.setting import LATER


async def journal(state: Path, *, dropped: int) -> list[object]:
    """Five payload segments, of which a record says that so many were dropped; the records."""
    with setting.new_state(state) as folder:
        for name in "abcd":
            async with setting.writing(folder, segment_bytes=1) as desk:
                await desk.put(name, name.encode() * 100)
        if dropped:
            async with setting.writing(folder) as desk:
                desk.writer.append(LATER, [Draft(PayloadsDropped(dropped))])
                await desk.writer.durable()
        payloads.drop(RealDisk(), state, dropped)
        return list(setting.read(folder)[1])


def left(state: Path) -> list[int]:
    return list(segments.extent(RealDisk(), state / PAYLOADS).numbers)


async def test_a_journal_goes_on_without_what_was_dropped(tmp_path: Path) -> None:
    records = await journal(tmp_path / "state", dropped=3)
    assert min(left(tmp_path / "state")) == 4
    assert inspect.verify(tmp_path / "state").problems == ()
    with StateFolder.open(tmp_path / "state", setting.DEMO) as folder:
        async with setting.writing(folder) as desk:
            await desk.put("e", b"more")
        assert [*records] == setting.read(folder)[1][: len(records)], "every record is still there"


async def test_only_so_many_segments_go_as_a_record_says(tmp_path: Path) -> None:
    await journal(tmp_path / "state", dropped=2)
    assert min(left(tmp_path / "state")) == 3


@pytest.mark.promise("P5")
@pytest.mark.parametrize("dropped", [0, 2])
async def test_a_segment_that_no_record_lets_go_is_missed(tmp_path: Path, dropped: int) -> None:
    await journal(tmp_path / "state", dropped=dropped)
    payloads.drop(RealDisk(), tmp_path / "state", dropped + 1)
    with pytest.raises(Damaged, match=f"payloads/0000000{dropped + 1}.seg"):
        setting.read_again(tmp_path / "state")
    assert [problem.kind for problem in inspect.verify(tmp_path / "state").problems] == ["missing"]


async def test_what_is_in_force_stays_and_is_judged(tmp_path: Path) -> None:
    await journal(tmp_path / "state", dropped=0)
    with StateFolder.open(tmp_path / "state", setting.DEMO) as folder:
        async with setting.writing(folder) as desk:
            desk.writer.append(LATER, [Draft(PayloadsDropped(4))])
            await desk.writer.durable()
    payloads.drop(RealDisk(), tmp_path / "state", 4, frozenset((2,)))
    assert left(tmp_path / "state") == [2, 5]
    assert inspect.verify(tmp_path / "state").problems == ()
    kept = tmp_path / "state" / PAYLOADS / segments.name(2)
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    with pytest.raises(Damaged, match=r"payloads/00000002.seg"):
        setting.read_again(tmp_path / "state")


@pytest.mark.promise("P5")
async def test_a_segment_between_is_missed_whatever_was_dropped_before(tmp_path: Path) -> None:
    await journal(tmp_path / "state", dropped=1)
    (tmp_path / "state" / PAYLOADS / segments.name(3)).unlink()
    with pytest.raises(Damaged, match=r"payloads/00000003.seg"):
        setting.read_again(tmp_path / "state")


async def test_what_a_crash_left_of_a_drop_is_dropped_by_the_next(tmp_path: Path) -> None:
    await journal(tmp_path / "state", dropped=3)
    (tmp_path / "state" / PAYLOADS / segments.name(3)).write_bytes(b"")
    payloads.drop(RealDisk(), tmp_path / "state", 3)
    assert min(left(tmp_path / "state")) == 4
