"""The two readers of a journal agree on what is whole and on what is not; and a reader that errs would be noticed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.journal import inspect
from broker.wire.records import Record
from tests.journal import agreement, decoder, setting

FILES = [
    *(f"{folder}/0000000{number}.seg" for folder in ("journal", "payloads") for number in (1, 2)),
    "head",
    "format",
]


@pytest.mark.promise("P27")
async def test_both_read_the_same_records(journal: Path) -> None:
    assert agreement.difference(journal) == ""
    assert [record[4] for record in decoder.whole(journal)] == ["instance_created", *["directive_consumed"] * 5]
    assert list(agreement.states(journal.parent)) == [journal]


@pytest.mark.parametrize("file", FILES)
async def test_both_judge_a_file_alike_wherever_it_ends(journal: Path, file: str) -> None:
    """Torn where it is the last of its folder, damaged elsewhere; a record that is missed by head or by a reference."""
    setting.forget_head(journal)
    size = (journal / file).stat().st_size
    verdicts = set()
    for cut in range(1, size + 1, 3):
        os.truncate(journal / file, size - cut)
        assert agreement.difference(journal) == ""
        verdicts.add(inspect.verify(journal).whole if file != "format" else False)
    assert verdicts == ({True, False} if file == "journal/00000002.seg" else {False})


@pytest.mark.parametrize("file", FILES)
async def test_both_judge_a_file_alike_whatever_byte_is_changed(journal: Path, file: str) -> None:
    raw = (journal / file).read_bytes()
    for at in range(0, len(raw), 5):
        (journal / file).write_bytes(raw[:at] + bytes([raw[at] ^ 0x01]) + raw[at + 1 :])
        assert agreement.difference(journal) == ""
        with pytest.raises(decoder.Wrong):
            decoder.whole(journal)


def _all_but_the_last(path: Path) -> Iterator[Record]:
    yield from list(_walk(path))[:-1]


def _none(path: Path) -> Iterator[Record]:
    yield from ()


_walk = inspect.walk


@pytest.mark.parametrize("walk", [_all_but_the_last, _none])
async def test_a_reader_that_leaves_out_a_record_is_noticed(
    journal: Path, monkeypatch: pytest.MonkeyPatch, walk: object
) -> None:
    monkeypatch.setattr(inspect, "walk", walk)
    assert "the page 6" in agreement.difference(journal)


async def test_a_reader_that_takes_what_the_page_refuses_is_noticed(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = inspect.verify(journal)
    (journal / "head").unlink()
    monkeypatch.setattr(inspect, "verify", lambda _path: whole)
    assert "the broker says 6 records, the page " in agreement.difference(journal)
