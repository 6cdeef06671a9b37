"""Verify and walk beside a broker that is writing: they take no lock, see no fault, and reach an end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.errors import Fatal
from broker.journal import inspect
from broker.journal.problem import Kind
from broker.journal.state import StateFolder
from tests.journal import setting
from tests.journal.setting import LATER, draft


@pytest.mark.promise("P27")
async def test_verify_beside_a_writer_sees_at_most_a_record_that_is_not_whole_yet(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        async with setting.writing(folder, segment_bytes=5000) as desk:
            writing = True

            async def write() -> None:
                number = 0
                while writing:
                    number += 1
                    desk.writer.append(LATER, [draft(f"{number}", b"x" * 100, b"y") for _ in range(5)])
                    await desk.writer.durable()

            task = asyncio.create_task(write())
            seen = [await asyncio.to_thread(inspect.verify, folder.path) for _ in range(20)]
            writing = False
            await task
        for report in seen:
            assert {problem.kind for problem in report.problems} <= {Kind.INCOMPLETE}, report.problems
            assert report.whole
        assert seen[-1].records > seen[0].records
        last = inspect.verify(folder.path)
        assert (last.problems, last.records) == ((), len(setting.read(folder)[1]))


def test_verify_says_when_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="is no state folder"):
        inspect.verify(tmp_path)
    with StateFolder.create(tmp_path / "state", setting.DEMO) as folder:
        report = inspect.verify(folder.path)
        assert [problem.kind for problem in report.problems] == [Kind.MISSING] * 3
        assert (report.records, report.whole) == (0, False)
        folder.journal.rmdir()
        for call in (inspect.verify, lambda path: list(inspect.walk(path))):
            with pytest.raises(Fatal, match="No such file or directory"):
                call(folder.path)


def test_reading_changes_nothing(journal: Path) -> None:
    setting.forget_head(journal)
    path = journal / "journal/00000002.seg"
    path.write_bytes(path.read_bytes()[:-5])
    (journal / "journal/00000003.seg.new").write_bytes(b"x")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in journal.rglob("*") if path.is_file()}
    assert inspect.verify(journal).whole
    assert len(list(inspect.walk(journal))) == 5
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before}
    assert set(before) == {path for path in journal.rglob("*") if path.is_file()}
