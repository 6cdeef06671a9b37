"""What one turn decided counts whole or not at all, wherever the power went; and nothing but a crash may explain it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import cbor2
import pytest

from broker.errors import Damaged
from broker.journal import inspect
from broker.journal.problem import Kind
from broker.journal.state import StateFolder
from broker.wire import frame
from tests.journal import agreement, decoder, setting
from tests.journal.setting import LATER, draft, word

FILE = "journal/00000001.seg"
TURNS = (["a"], ["b", "c", "d"], ["e", "f"])


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """A journal of one segment with three turns behind its first record; nobody holds it, and its head is old."""
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder) as desk:
            for names in TURNS:
                desk.writer.append(LATER, [draft(name, name.encode()) for name in names])
            await desk.writer.durable()
    setting.forget_head(folder.path)
    return folder.path


def rechained(state: Path, rests: list[int]) -> None:
    """The same records with other words about what follows, and every digest and link right."""
    header, first, *others = decoder.frames((state / FILE).read_bytes())
    data = [frame.encode(header.raw)[0], frame.encode(first.raw)[0]]
    prev = sha256(first.raw).digest()
    for seen, rest in zip(others, rests, strict=False):
        value = [*seen.value[:3], prev, *seen.value[4:7], rest]
        raw = cbor2.dumps(value, canonical=True)
        data.append(frame.encode(raw)[0])
        prev = sha256(raw).digest()
    (state / FILE).write_bytes(b"".join(data))


@pytest.mark.promise("P4", "P5")
def test_a_file_cut_at_any_byte_keeps_whole_turns(state: Path) -> None:
    data = (state / FILE).read_bytes()
    ends = [seen.end for seen in decoder.frames(data)]
    kept = {ends[0]: 0, ends[1]: 1, ends[2]: 2, ends[5]: 5, ends[7]: 7}  # records, by where a turn ends
    with StateFolder.open(state, setting.DEMO) as folder:
        for length in range(ends[1], len(data) + 1):
            (state / FILE).write_bytes(data[:length])
            whole = max(end for end in kept if end <= length)
            report = inspect.verify(state)
            assert [(problem.kind, problem.offset) for problem in report.problems] == (
                [(Kind.INCOMPLETE, whole)] if length > whole else []
            )
            assert (report.whole, report.records) == (True, kept[whole])
            if min(abs(length - end) for end in ends) <= 1:
                assert agreement.difference(state) == ""
            recovered, records = setting.read(folder)
            assert [record.seq for record in records] == list(range(1, kept[whole] + 1))
            assert (recovered.cut_bytes, recovered.head) == (length - whole, report.head)
            assert (state / FILE).read_bytes() == data[:whole]


@pytest.mark.promise("P5")
async def test_a_broker_goes_on_behind_a_turn_that_was_cut(state: Path) -> None:
    data = (state / FILE).read_bytes()
    (state / FILE).write_bytes(data[: decoder.frames(data)[6].end])
    with StateFolder.open(state, setting.DEMO) as folder:
        async with setting.writing(folder) as desk:
            await desk.put("g", b"g")
        assert [word(record) for record in setting.read(folder)[1][1:]] == ["a", "b", "c", "d", "g"]
    assert inspect.verify(state).problems == ()
    assert agreement.difference(state) == ""


def test_verify_says_which_turn_lacks_what(state: Path) -> None:
    data = (state / FILE).read_bytes()
    third = decoder.frames(data)[3]
    (state / FILE).write_bytes(data[: decoder.frames(data)[4].end])
    (problem,) = inspect.verify(state).problems
    assert str(problem) == (
        f"{FILE} at byte {third.start}, record 3: expected the 3 records of a turn, found the first 2 of them"
    )


@pytest.mark.promise("P5", "P27")
@pytest.mark.parametrize(
    "rests",
    [[0, 2, 0, 0, 1, 0], [0, 2, 2, 1, 1, 0], [0, 2, 1, 1, 1, 0], [1, 2, 1, 0, 1, 0], [0, 3, 1, 0, 1, 0]],
    ids=["ends early", "stands still", "does not end", "swallowed by one before", "one is missing"],
)
def test_a_turn_that_no_broker_wrote_is_damage(state: Path, rests: list[int]) -> None:
    rechained(state, rests)
    report = inspect.verify(state)
    assert Kind.MISPLACED in {problem.kind for problem in report.problems}
    assert not report.whole
    assert agreement.difference(state) == ""
    with StateFolder.open(state, setting.DEMO) as folder, pytest.raises(Damaged):
        setting.read(folder)


@pytest.mark.promise("P5")
async def test_in_a_closed_segment_no_turn_may_lack_its_end(state: Path) -> None:
    with StateFolder.open(state, setting.DEMO) as folder:
        async with setting.writing(folder, segment_bytes=1) as desk:
            await desk.put("in the second segment")
        rechained(state, [0, 2, 1, 0, 2, 1])
        report = inspect.verify(state)
        words = [(problem.kind, problem.file, problem.seq) for problem in report.problems]
        assert (Kind.MISPLACED, FILE, 6) in words
        assert (state / "journal/00000002.seg").exists()
        with pytest.raises(Damaged):
            setting.read(folder)
    assert agreement.difference(state) == ""
