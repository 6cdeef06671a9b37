"""A journal that somebody or something changed: verify names the place, and no broker starts on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest

from broker.errors import Damaged
from broker.journal import inspect
from broker.journal.header import PayloadsHeader
from broker.journal.problem import Kind, Problem
from broker.journal.state import StateFolder
from broker.wire import frame
from tests.journal import decoder, setting

RECORDS = ["journal/00000001.seg", "journal/00000002.seg"]
PAYLOADS = ["payloads/00000001.seg", "payloads/00000002.seg"]
SEQS = {RECORDS[0]: [None, 1, 2, 3], RECORDS[1]: [None, 4, 5, 6]}


def problems(state: Path) -> tuple[Problem, ...]:
    return inspect.verify(state).problems


def refused(state: Path) -> str:
    with StateFolder.open(state, setting.DEMO) as folder:
        return refused_held(folder)


def refused_held(folder: StateFolder) -> str:
    with pytest.raises(Damaged) as caught:
        setting.read(folder)
    assert caught.value.hint == "lever journal verify"
    return caught.value.why


def cut_into(state: Path, file: str) -> list[bytes]:
    """The file's frames, header first."""
    data = (state / file).read_bytes()
    return [data[seen.start : seen.end] for seen in decoder.frames(data)]


def test_the_journal_to_break_is_whole_and_has_two_segments_of_each_kind(journal: Path) -> None:
    report = inspect.verify(journal)
    assert (report.problems, report.records, report.payloads, report.whole) == ((), 6, 5, True)
    assert [len(cut_into(journal, file)) for file in RECORDS + PAYLOADS] == [4, 4, 3, 4]
    recovered, records = setting.read_again(journal)
    assert [setting.word(record) for record in records] == ["InstanceCreated", "a", "b", "c", "d", "e"]
    assert report.head == recovered.head
    assert recovered.cut_bytes == 0


@pytest.mark.promise("P5", "P27")
@pytest.mark.parametrize("file", RECORDS + PAYLOADS)
def test_every_altered_byte_is_found_at_its_frame_and_refused(journal: Path, file: str) -> None:
    path = journal / file
    data = path.read_bytes()
    places = [
        (at, index, seen) for index, seen in enumerate(decoder.frames(data)) for at in range(seen.start, seen.end)
    ]
    with StateFolder.open(journal, setting.DEMO) as folder:
        for at, index, seen in places:
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
            found = [problem for problem in problems(journal) if (problem.file, problem.offset) == (file, seen.start)]
            assert found, at
            assert all(problem.kind in (Kind.DAMAGED, Kind.PAYLOAD) for problem in found)
            if file in SEQS:
                assert found[0].seq == SEQS[file][index]
            assert f"{file} at byte {seen.start}" in refused_held(folder)
            assert path.stat().st_size == len(data), "a refusal changes nothing"


@pytest.mark.promise("P5", "P27")
@pytest.mark.parametrize("file", RECORDS + PAYLOADS)
def test_every_removed_and_every_inserted_byte_is_found_and_refused(journal: Path, file: str) -> None:
    path = journal / file
    data = path.read_bytes()
    last = decoder.frames(data)[-1].start
    with StateFolder.open(journal, setting.DEMO) as folder:
        for at in range(len(data)):
            for changed in (data[:at] + data[at + 1 :], data[:at] + b"\x00" + data[at:]):
                path.write_bytes(changed)
                found = problems(journal)
                assert file in {problem.file for problem in found}, at
                if all(problem.kind is Kind.INCOMPLETE for problem in found):
                    # One byte short, the last frame of all is as a power cut leaves it.
                    assert (file, at >= last, len(changed) < len(data)) == (RECORDS[1], True, True)
                else:
                    refused_held(folder)


def moved(change: Callable[[list[bytes]], list[bytes]], file: str) -> Callable[[Path], None]:
    def apply(state: Path) -> None:
        (state / file).write_bytes(b"".join(change(cut_into(state, file))))

    return apply


def forged(file: str, index: int, **fields: Any) -> Callable[[Path], None]:
    """One record of the file says something else, and every digest of its own frame is right."""

    def apply(state: Path) -> None:
        parts = cut_into(state, file)
        value = decoder.frames(parts[index])[0].value
        for place, name in enumerate(("format", "seq", "at", "prev", "kind", "payloads", "body", "rest")):
            value[place] = fields.get(name, value[place])
        parts[index] = frame.encode(cbor2.dumps(value, canonical=True))[0]
        (state / file).write_bytes(b"".join(parts))

    return apply


def reheaded(file: str, **fields: object) -> Callable[[Path], None]:
    """Another header, well-formed."""

    def apply(state: Path) -> None:
        first, *rest = cut_into(state, file)
        value = cbor2.loads(decoder.frames(first)[0].raw)
        for place, name in enumerate(("magic", "format", "instance", "number", "first_seq", "prev")):
            if name in fields:
                value[place] = fields[name]
        (state / file).write_bytes(b"".join([frame.encode(cbor2.dumps(value, canonical=True))[0], *rest]))

    return apply


def gone(file: str) -> Callable[[Path], None]:
    return lambda state: (state / file).unlink()


def swapped(one: str, other: str) -> Callable[[Path], None]:
    def apply(state: Path) -> None:
        data = (state / one).read_bytes()
        (state / one).write_bytes((state / other).read_bytes())
        (state / other).write_bytes(data)

    return apply


CASES: list[tuple[str, Callable[[Path], None], Kind, str, int | None]] = [
    ("record removed", moved(lambda f: [f[0], f[1], f[3]], RECORDS[0]), Kind.MISPLACED, RECORDS[0], 3),
    ("first record removed", moved(lambda f: [f[0], *f[2:]], RECORDS[0]), Kind.MISPLACED, RECORDS[0], 2),
    ("records reordered", moved(lambda f: [f[0], f[1], f[3], f[2]], RECORDS[0]), Kind.MISPLACED, RECORDS[0], 3),
    ("record doubled", moved(lambda f: [*f, f[-1]], RECORDS[1]), Kind.MISPLACED, RECORDS[1], 6),
    ("old record again", moved(lambda f: [*f, f[1]], RECORDS[1]), Kind.MISPLACED, RECORDS[1], 4),
    ("record inserted", moved(lambda f: [*f, frame.encode(b"\x80")[0]], RECORDS[1]), Kind.DAMAGED, RECORDS[1], 7),
    ("not a record", moved(lambda f: [f[0], frame.encode(b"x")[0], *f[2:]], RECORDS[0]), Kind.DAMAGED, RECORDS[0], 1),
    ("record too long", forged(RECORDS[1], 3, kind="directives_expired", body={"ids": ["x" * 1024] * 1024}),
     Kind.DAMAGED, RECORDS[1], 6),
    ("record forged", forged(RECORDS[0], 2, at=7), Kind.MISPLACED, RECORDS[0], 3),
    ("record renumbered", forged(RECORDS[1], 3, seq=7), Kind.MISPLACED, RECORDS[1], 7),
    ("first record of another instance", forged(RECORDS[0], 1, body={"instance": "other", "ca_digest": bytes(32)}),
     Kind.MISPLACED, RECORDS[0], 1),
    ("first record of another kind", forged(RECORDS[0], 1, kind="broker_stopped", body={}), Kind.MISPLACED,
     RECORDS[0], 1),
    ("bytes behind a closed segment", moved(lambda f: [*f, f[1][:20]], RECORDS[0]), Kind.DAMAGED, RECORDS[0], 4),
    ("bytes behind closed payloads", moved(lambda f: [*f, f[1][:20]], PAYLOADS[0]), Kind.DAMAGED, PAYLOADS[0], None),
    ("end of a closed segment cut", moved(lambda f: f[:-1], RECORDS[0]), Kind.MISPLACED, RECORDS[1], 3),
    ("all records removed", moved(lambda f: f[:1], RECORDS[0]), Kind.MISPLACED, RECORDS[1], 1),
    ("header removed", moved(lambda f: f[1:], RECORDS[0]), Kind.DAMAGED, RECORDS[0], None),
    ("segment emptied", moved(lambda f: [], RECORDS[0]), Kind.DAMAGED, RECORDS[0], None),
    ("last segment emptied", moved(lambda f: [], RECORDS[1]), Kind.DAMAGED, RECORDS[1], None),
    ("zeros behind the end", moved(lambda f: [*f, bytes(4096)], RECORDS[1]), Kind.DAMAGED, RECORDS[1], 7),
    ("first segment gone", gone(RECORDS[0]), Kind.MISSING, RECORDS[0], 1),
    ("segments swapped", swapped(*RECORDS), Kind.MISPLACED, RECORDS[0], None),
    ("of another instance", reheaded(RECORDS[1], instance="other"), Kind.MISPLACED, RECORDS[1], None),
    ("of another number", reheaded(RECORDS[1], number=3), Kind.MISPLACED, RECORDS[1], None),
    ("of another first record", reheaded(RECORDS[1], first_seq=5), Kind.MISPLACED, RECORDS[1], 4),
    ("of another chain", reheaded(RECORDS[1], prev=bytes(32)), Kind.MISPLACED, RECORDS[1], 4),
    ("of another kind", swapped(RECORDS[0], PAYLOADS[0]), Kind.MISPLACED, RECORDS[0], None),
    ("newer header", reheaded(RECORDS[1], format=2), Kind.DAMAGED, RECORDS[1], None),
    ("payload altered", moved(lambda f: [f[0], frame.encode(b"Statement")[0], *f[2:]], PAYLOADS[0]),
     Kind.PAYLOAD, PAYLOADS[0], 2),
    ("payload removed", moved(lambda f: [f[0], f[2]], PAYLOADS[0]), Kind.PAYLOAD, PAYLOADS[0], 2),
    ("payloads swapped", moved(lambda f: [f[0], f[2], f[1]], PAYLOADS[0]), Kind.PAYLOAD, PAYLOADS[0], 2),
    ("payloads' end cut", moved(lambda f: f[:-1], PAYLOADS[1]), Kind.PAYLOAD, PAYLOADS[1], 5),
    ("payload file gone", gone(PAYLOADS[0]), Kind.MISSING, PAYLOADS[0], 2),
    ("last payload file gone", gone(PAYLOADS[1]), Kind.MISSING, PAYLOADS[1], 4),
    ("payload file of another instance", reheaded(PAYLOADS[1], instance="other"), Kind.MISPLACED, PAYLOADS[1], None),
    ("payload file emptied", moved(lambda f: [], PAYLOADS[1]), Kind.DAMAGED, PAYLOADS[1], None),
]  # fmt: skip


@pytest.mark.promise("P5", "P27")
@pytest.mark.parametrize(("change", "kind", "file", "seq"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_what_is_whole_but_not_in_its_place_is_found_and_refused(
    journal: Path, change: Callable[[Path], None], kind: Kind, file: str, seq: int | None
) -> None:
    change(journal)
    report = inspect.verify(journal)
    assert (kind, file, seq) in [(problem.kind, problem.file, problem.seq) for problem in report.problems]
    assert not report.whole
    refused(journal)


@pytest.mark.promise("P27")
@pytest.mark.parametrize("fields", [{"first_seq": 5}, {"prev": bytes(32)}], ids=["first record", "chain"])
def test_a_header_that_does_not_continue_the_segment_before_is_named_itself(
    journal: Path, fields: dict[str, object]
) -> None:
    reheaded(RECORDS[1], **fields)(journal)
    assert (Kind.MISPLACED, RECORDS[1], 0) in [(found.kind, found.file, found.offset) for found in problems(journal)]


@pytest.mark.promise("P5")
def test_a_segment_without_any_record_is_not_an_empty_journal(journal: Path) -> None:
    moved(lambda f: f[:1], RECORDS[0])(journal)
    gone(RECORDS[1])(journal)
    assert "expected the record instance_created, found no record" in refused(journal)


@pytest.mark.promise("P5")
def test_both_kinds_of_files_gone_is_not_an_empty_journal(journal: Path) -> None:
    for file in RECORDS + PAYLOADS:
        (journal / file).unlink()
    assert "no segment at all" in refused(journal)
    assert {problem.file for problem in problems(journal)} == {RECORDS[0], PAYLOADS[0]}


@pytest.mark.promise("P5")
def test_a_gap_between_payload_segments_that_no_record_names_is_missed_too(journal: Path) -> None:
    unnamed = PayloadsHeader(setting.DEMO, 4).encode()
    (journal / "payloads/00000004.seg").write_bytes(frame.encode(unnamed)[0])
    (problem,) = problems(journal)
    assert (problem.kind, problem.file) == (Kind.MISSING, "payloads/00000003.seg")
    refused(journal)


@pytest.mark.promise("P5")
@pytest.mark.parametrize("file", [RECORDS[1], PAYLOADS[1]])
def test_of_a_file_cut_at_any_length_the_whole_frames_are_kept(journal: Path, file: str) -> None:
    """The last segment's torn frame is cut off, and what is left is exactly what was whole, if no record misses it."""
    setting.forget_head(journal)
    path = journal / file
    data = path.read_bytes()
    ends = [seen.end for seen in decoder.frames(data)]
    first = ends[0]
    if file == PAYLOADS[1]:  # a payload that no record names, as a power cut before its record leaves it
        first = len(data)
        data += frame.encode(b"of a record that was never written")[0]
        ends.append(len(data))
    with StateFolder.open(journal, setting.DEMO) as folder:
        for length in range(first, len(data) + 1):
            path.write_bytes(data[:length])
            torn = length - max(end for end in ends if end <= length)
            report = inspect.verify(journal)
            assert [problem.kind for problem in report.problems] == [Kind.INCOMPLETE] * bool(torn)
            assert report.whole
            recovered, records = setting.read(folder)
            assert (recovered.cut_bytes, recovered.head) == (torn, report.head)
            assert path.read_bytes() == data[: length - torn]
            kept = 6 if file == PAYLOADS[1] else 3 + sum(end <= length for end in ends[1:])
            assert [record.seq for record in records] == list(range(1, kept + 1))
            assert recovered.next_seq == kept + 1


@pytest.mark.promise("P5")
@pytest.mark.parametrize("file", [RECORDS[0], PAYLOADS[0]])
def test_of_a_closed_segment_nothing_may_be_cut(journal: Path, file: str) -> None:
    path = journal / file
    data = path.read_bytes()
    with StateFolder.open(journal, setting.DEMO) as folder:
        for length in range(len(data)):
            path.write_bytes(data[:length])
            refused_held(folder)
            assert path.stat().st_size == length


@pytest.mark.promise("P5")
@pytest.mark.parametrize("file", [RECORDS[1], PAYLOADS[1]])
def test_a_header_that_is_cut_is_no_torn_tail(journal: Path, file: str) -> None:
    """A segment gets its name when its header is on the disk, so no crash leaves half of one."""
    path = journal / file
    data = path.read_bytes()
    for length in range(decoder.frames(data)[0].end):
        path.write_bytes(data[:length])
        refused(journal)


def test_verify_goes_on_behind_a_problem_and_names_them_all(journal: Path) -> None:
    for file in RECORDS:
        path = journal / file
        data = bytearray(path.read_bytes())
        second = decoder.frames(bytes(data))[2]
        data[second.start + 8] ^= 1
        path.write_bytes(data)
    report = inspect.verify(journal)
    assert [(problem.file, problem.seq) for problem in report.problems] == [(RECORDS[0], 2), (RECORDS[1], 5)]
    assert report.records == 4


def test_a_problem_says_where_what_was_expected_and_what_was_found(journal: Path) -> None:
    path = journal / RECORDS[0]
    data = bytearray(path.read_bytes())
    second = decoder.frames(bytes(data))[2]
    data[second.start + 8] ^= 1
    path.write_bytes(data)
    (problem,) = problems(journal)
    assert str(problem) == (
        f"journal/00000001.seg at byte {second.start}, record 2: expected a record,"
        " found the bytes and their digest disagree"
    )


def test_a_length_that_can_not_be_believed_ends_that_file_alone(journal: Path) -> None:
    path = journal / RECORDS[0]
    data = bytearray(path.read_bytes())
    data[decoder.frames(bytes(data))[2].start] ^= 1
    path.write_bytes(data)
    (problem,) = problems(journal)
    assert "nothing behind it in this file can be read" in problem.found
    assert inspect.verify(journal).records == 4


def test_a_reference_far_beyond_all_files_is_told_without_looking_for_them(journal: Path) -> None:
    setting.forget_head(journal)
    forged(RECORDS[1], 3, payloads=[[bytes(32), 1 << 60, 1 << 60, 1 << 60]])(journal)
    (problem,) = problems(journal)
    assert (problem.kind, problem.seq) == (Kind.MISSING, 6)


def test_names_that_are_no_segments_are_left_alone(journal: Path) -> None:
    stray = [journal / "journal" / name for name in ("1.seg", "00000003.seg~", "x")]
    for path in stray:
        path.write_bytes(b"x")
    setting.read_again(journal)
    assert problems(journal) == ()
    assert all(path.exists() for path in stray)


def test_a_segment_that_a_crash_left_unfinished_is_removed(journal: Path) -> None:
    for folder in ("journal", "payloads"):
        (journal / folder / "00000003.seg.new").write_bytes(b"half a hea")
    assert problems(journal) == ()
    setting.read_again(journal)
    assert not list(journal.glob("*/*.new"))


def test_walk_gives_the_records_and_stops_at_what_is_not_to_be_believed(journal: Path) -> None:
    assert [record.seq for record in inspect.walk(journal)] == [1, 2, 3, 4, 5, 6]
    path = journal / RECORDS[1]
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert [record.seq for record in inspect.walk(journal)] == [1, 2, 3, 4, 5]
    gone(RECORDS[0])(journal)
    with pytest.raises(Damaged, match="segment 1"):
        list(inspect.walk(journal))
