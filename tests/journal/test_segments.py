"""One segment follows another, and what is in them is found again by its place."""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

import pytest

from broker.errors import Fatal
from broker.journal import inspect
from broker.journal.disk import RealDisk
from broker.journal.segments import frames
from broker.wire import frame
from broker.wire.records import PayloadRef
from tests.journal import decoder, setting
from tests.journal.setting import LATER, draft, word


async def test_a_journal_goes_on_where_it_ended(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        for name in ("one", "two", "three"):
            async with setting.writing(folder) as desk:
                await desk.put(name, name.encode())
        recovered, records = setting.read(folder)
        assert [word(record) for record in records] == ["InstanceCreated", "one", "two", "three"]
        assert [recovered.read_payload(record.payloads[0]) for record in records[1:]] == [b"one", b"two", b"three"]
    assert inspect.verify(folder.path).problems == ()


async def test_segments_follow_each_other(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder, segment_bytes=500) as desk:
            for number in range(10):
                await desk.put(f"one-{number}", b"x" * 150)
            for number in range(10):
                desk.writer.append(LATER, [draft(f"all-{number}", b"y" * 150, b"")])
            await desk.writer.durable()
        assert len(list(folder.journal.iterdir())) > 5
        assert len(list(folder.payloads.iterdir())) > 5
        assert max(path.stat().st_size for path in folder.path.glob("*/*.seg")) < 500 + 600
        _, records = setting.read(folder)
        assert [word(r) for r in records[1:]] == [f"one-{n}" for n in range(10)] + [f"all-{n}" for n in range(10)]
    assert desk.words() == [word(record) for record in records[1:]]
    assert inspect.verify(folder.path).problems == ()
    for record in decoder.records(folder.path)[11:]:
        assert [decoder.payload(folder.path, ref) for ref in record[5]] == [b"y" * 150, b""]


async def test_a_segment_of_any_size_holds_at_least_one_record(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder, segment_bytes=1) as desk:
            for number in range(3):
                desk.writer.append(LATER, [draft(str(number), b"a", b"b")])
            await desk.writer.durable()
        assert len(list(folder.journal.iterdir())) == 4
        assert len(setting.read(folder)[1]) == 4


@pytest.mark.promise("P4")
async def test_the_records_of_a_turn_lie_in_one_segment(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder, segment_bytes=1) as desk:
            for turn in ("a", "b"):
                desk.writer.append(LATER, [draft(f"{turn}-{number}", b"x", b"y") for number in range(3)])
            await desk.writer.durable()
        segments = [decoder.frames(path.read_bytes()) for path in sorted(folder.journal.iterdir())]
        assert [[frame.value[7] for frame in rest] for _, *rest in segments] == [[0], [2, 1, 0], [2, 1, 0]]
        assert len(setting.read(folder)[1]) == 7
    assert inspect.verify(folder.path).problems == ()


@pytest.mark.promise("P5")
async def test_a_payload_that_is_read_later_is_checked_again(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder) as desk:
            (ref,) = (await desk.put("a", b"statement")).payloads
        recovered, _ = setting.read(folder)
        path = folder.payloads / "00000001.seg"
        data = path.read_bytes()
        path.write_bytes(data.replace(b"statement", b"Statement"))
        gone = PayloadRef(ref.digest, 9, ref.offset, ref.length)
        longer = PayloadRef(ref.digest, ref.segment, ref.offset, 1 << 60)
        for wrong in (ref, gone, longer):
            with pytest.raises(Fatal) as caught:
                recovered.read_payload(wrong)
            assert f"payloads/{wrong.segment:08}.seg" in caught.value.why
        other = frame.encode(b"STATEMENT")[0]  # a whole frame, of other bytes
        path.write_bytes(data[: ref.offset] + other + data[ref.offset + len(other) :])
        with pytest.raises(Fatal, match="expected 9 bytes"):
            recovered.read_payload(ref)
        path.write_bytes(data)
        assert recovered.read_payload(ref) == b"statement"


def test_a_file_is_read_in_pieces_however_long_its_frames(tmp_path: Path) -> None:
    raws = [b"x" * size for size in (0, 1, (1 << 20) - 40, 1 << 20, (3 << 20) + 1, 5)]
    path = tmp_path / "a"
    path.write_bytes(b"".join(frame.encode(raw)[0] for raw in raws))
    found = list(frames(RealDisk(), path))
    assert [one.what.raw for one in found if isinstance(one.what, frame.Frame)] == raws
    assert found[-1].end == path.stat().st_size


def test_a_frame_cannot_ask_for_more_memory_than_the_longest_frame(tmp_path: Path) -> None:
    size = struct.pack(">I", (1 << 32) - 1)
    (tmp_path / "a").write_bytes(size + struct.pack(">I", crc32(size)) + bytes(100))
    (found,) = frames(RealDisk(), tmp_path / "a")
    assert (type(found.what), found.end) == (frame.Damaged, None)
