"""A journal only grows: one that lost its end, or is an older copy, is found by the head kept beside it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from broker.errors import Damaged
from broker.journal import head, inspect
from broker.journal.disk import RealDisk
from broker.journal.head import Head
from broker.wire.names import Digest
from tests.journal import decoder, setting


@pytest.fixture
async def journal(tmp_path: Path) -> Path:
    """Six records, closed in good order."""
    return await setting.small_journal(tmp_path / "state")


def refused(state: Path, *words: str) -> None:
    """Start and verify say the same."""
    with pytest.raises(Damaged) as caught:
        setting.read_again(state)
    (problem,) = inspect.verify(state).problems
    for word in words:
        assert word in caught.value.why
        assert word in str(problem)


@pytest.mark.promise("P5", "P27")
@pytest.mark.parametrize("lost", [1, 2])
def test_whole_records_cut_off_the_end_are_missed(journal: Path, lost: int) -> None:
    last = journal / "journal/00000002.seg"
    os.truncate(last, decoder.frames(last.read_bytes())[-lost].start)
    refused(journal, "record 6 with digest", f"a journal that ends at record {6 - lost}")


@pytest.mark.promise("P5")
def test_a_journal_of_another_history_is_told_from_its_own(journal: Path) -> None:
    for seq in (3, 6):
        head.keep(RealDisk(), journal, setting.DEMO, Head(seq, Digest(b"x" * 32)))
        refused(journal, "another record of that number")


@pytest.mark.promise("P5")
@pytest.mark.parametrize("text", ["", "lever-head 1\n", "lever-head 2\ninstance demo\nrecord 1\n", "\0" * 100, None])
def test_a_head_that_is_gone_or_damaged_is_not_made_anew(journal: Path, text: str | None) -> None:
    path = journal / "head"
    path.unlink() if text is None else path.write_text(text)
    refused(journal, "no such file" if text is None else "other text than its four lines")


@pytest.mark.promise("P5")
def test_another_instances_head_is_refused(journal: Path) -> None:
    path = journal / "head"
    path.write_text(path.read_text().replace("demo", "other"))
    refused(journal, "four lines of instance demo")


async def test_a_journal_may_be_longer_than_its_head_and_the_head_follows(journal: Path) -> None:
    setting.forget_head(journal)
    state, records = setting.read_again(journal)
    assert len(records) == 6
    assert inspect.verify(journal).problems == ()
    with setting.StateFolder.open(journal, setting.DEMO) as folder:
        async with setting.writing(folder) as desk:
            record = await desk.put("more")
            desk.writer.keep_head()
            while head.read(RealDisk(), journal, setting.DEMO).seq != record.seq:
                await asyncio.sleep(0)
            assert desk.stopped == []
    assert head.read(RealDisk(), journal, setting.DEMO).seq == 7
    assert state.next_seq == 7


def test_what_a_crash_left_of_a_new_head_is_removed(journal: Path) -> None:
    (journal / "head.new").write_text("half of")
    setting.read_again(journal)
    assert not (journal / "head.new").exists()
