"""A reader of a state folder's journal, made from docs/formats/journal.md alone: it shares no line with the broker's.

What the page's section "Reading" demands of a broker it demands too: whatever is not so is Wrong.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import cbor2

from tests.journal.page import KINDS

_MAX_FRAME, _MAX_RECORD, _MAX_INTEGER = 16_777_216, 1_048_576, (1 << 63) - 1
_YEAR_1, _YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
_SEGMENT = re.compile(r"[0-9]{8}\.seg")
_FORMAT = re.compile(r"lever-state 1\ninstance (.+)\n")
_HEAD = re.compile(r"lever-head 1\ninstance (.+)\nrecord ([1-9][0-9]*)\ndigest ([0-9a-f]{64})\n")


class Wrong(AssertionError):
    """Something in the folder is not as the page says."""


def _must(holds: object, what: str) -> None:
    if not holds:
        raise Wrong(what)


@dataclass(frozen=True)
class Seen:
    """A whole frame: where it begins and ends, and the value inside (a payload's bytes where it is no CBOR)."""

    start: int
    end: int
    raw: bytes

    @property
    def value(self) -> Any:
        return cbor2.loads(self.raw)


def frames(data: bytes, *, last: bool = False) -> list[Seen]:
    """All frames of a whole file. last: it may end inside its last frame, which is then left out."""
    seen, at = [], 0
    while at < len(data):
        length, check = data[at : at + 4], data[at + 4 : at + 8]
        torn = len(check) < 4
        _must(torn or check == zlib.crc32(length).to_bytes(4, "big"), f"at {at}: a length that was altered")
        size = int.from_bytes(length, "big")
        _must(torn or size <= _MAX_FRAME, f"at {at}: a frame of {size} bytes")
        end = at + 8 + size + 32
        if torn or end > len(data):
            _must(last, f"at {at}: the file ends inside a frame")
            break
        raw = data[at + 8 : end - 32]
        _must(data[end - 32 : end] == sha256(raw).digest(), f"at {at}: content that was altered")
        seen.append(Seen(at, end, raw))
        at = end
    return seen


def _plain(value: Any) -> bool:
    """Of the types that the page allows, and no others."""
    match value:
        case bool():
            return False
        case int():
            return -_MAX_INTEGER <= value <= _MAX_INTEGER
        case bytes() | str():
            return True
        case list():
            return all(map(_plain, value))
        case dict():
            return all(type(key) is str and _plain(inner) for key, inner in value.items())
    return False


def _cbor(raw: bytes) -> Any:
    """The value of bytes in the one deterministic form."""
    try:
        value = cbor2.loads(raw)
    except Exception as error:
        raise Wrong(f"not CBOR: {raw[:40].hex()}") from error
    _must(_plain(value), f"a value of another type in {value!r}")
    _must(cbor2.dumps(value, canonical=True) == raw, f"not in deterministic form: {raw[:40].hex()}")
    return value


def _segments(folder: Path, dropped: int = 0) -> Iterator[tuple[int, list[Seen]]]:
    """Every segment's number and frames, header first. dropped: up to this one, any may be missing."""
    names = sorted(entry.name for entry in folder.iterdir() if _SEGMENT.fullmatch(entry.name))
    _must(names, f"no segment in {folder.name}")
    there = [int(name[:8]) for name in names]
    for number in range(dropped + 1, there[-1]):
        _must(number in there, f"segment {number} of {folder.name} is missing")
    for number, name in zip(there, names, strict=True):
        seen = frames((folder / name).read_bytes(), last=name == names[-1])
        _must(seen, f"{folder.name}/{name} has no header")
        yield number, seen


def _is(what: str, value: Any) -> bool:
    match what:
        case "text":
            return type(value) is str
        case "number":
            return type(value) is int
        case "time":
            return type(value) is int and _YEAR_1 <= value < _YEAR_10000
        case "digest":
            return type(value) is bytes and len(value) == 32
        case "texts":
            return type(value) is list and all(type(each) is str for each in value)
    raise Wrong(f"the page has fields of a kind that is new here: {what}")


def _record(raw: bytes, seq: int, prev: bytes) -> list[Any]:
    """One record, its form and its link."""
    _must(len(raw) <= _MAX_RECORD, f"record {seq} has {len(raw)} bytes")
    value = _cbor(raw)
    _must(type(value) is list and len(value) == 8, f"record {seq} is no array of eight")
    form, number, at, link, kind, refs, body, rest = value
    _must((form, number, link) == (1, seq, prev), f"record {seq} does not follow the one before")
    _must(_is("time", at) and kind in KINDS, f"record {seq} is of kind {kind}, at {at}")
    _must(type(body) is dict and body.keys() == KINDS[kind].keys(), f"record {seq} has the fields {body}")
    _must(all(_is(what, body[name]) for name, what in KINDS[kind].items()), f"record {seq} says {body}")
    _must(type(refs) is list and all(map(_is_reference, refs)), f"record {seq} refers to {refs}")
    _must(type(rest) is int and rest >= 0, f"{rest} records of the turn of record {seq} follow")
    return value


def _is_reference(ref: Any) -> bool:
    return type(ref) is list and len(ref) == 4 and _is("digest", ref[0]) and all(_is("number", it) for it in ref[1:])


def records(state: Path) -> list[Any]:
    """The records of a whole journal, with every header, form and link checked as the page says."""
    found: list[Any] = []
    instance, prev = None, bytes(32)
    for number, (header, *rest) in _segments(state / "journal"):
        _must(not found or found[-1][7] == 0, f"segment {number} begins within a turn")
        value = _cbor(header.raw)
        instance = instance or (value[2] if type(value) is list and len(value) == 6 else None)
        expected = ["lever-journal", 1, instance, number, len(found) + 1, prev]
        _must(instance and value == expected, f"record segment {number} begins with {value}")
        for frame in rest:
            found.append(_record(frame.raw, len(found) + 1, prev))
            prev = sha256(frame.raw).digest()
    _must(found and found[0][4] == "instance_created", "the journal does not begin with its instance")
    _must(found[0][6]["instance"] == instance, "the first record is of another instance")
    for before, after in pairwise(found):
        _must(before[7] in (0, after[7] + 1), f"record {after[1]} is not the next of its turn")
        _must(after[2] >= before[2] or after[4] == "clock_accepted", f"record {after[1]} is older than the one before")
    return found[: 1 + max(place for place, record in enumerate(found) if record[7] == 0)]


def payload(state: Path, ref: list[Any]) -> bytes:
    """The bytes that a record's reference names."""
    digest, segment, offset, length = ref
    data = (state / "payloads" / f"{segment:08}.seg").read_bytes()
    (seen,) = frames(data[offset : offset + 8 + length + 32])
    _must(len(seen.raw) == length and sha256(seen.raw).digest() == digest, f"other bytes than {ref}")
    return seen.raw


def _check_payloads(state: Path, instance: str, found: list[Any]) -> None:
    refs = [ref for record in found for ref in record[5]]
    dropped = max((record[6]["through"] for record in found if record[4] == "payloads_dropped"), default=0)
    places: dict[tuple[int, int], bytes] = {}
    there = []
    for number, (header, *rest) in _segments(state / "payloads", dropped):
        there.append(number)
        _must(_cbor(header.raw) == ["lever-payloads", 1, instance, number], f"payload segment {number}: its header")
        places |= {(number, frame.start): frame.raw for frame in rest}
    for ref in (ref for ref in refs if ref[1] > dropped or ref[1] in there):
        raw = places.get((ref[1], ref[2]))
        _must(raw is not None and [sha256(raw).digest(), len(raw)] == [ref[0], ref[3]], f"no payload as {ref} says")
    named = [(ref[1], ref[2]) for ref in refs]
    _must(named == sorted(set(named)), "references that go backwards")


def _check_head(state: Path, instance: str, found: list[Any]) -> None:
    said = _HEAD.fullmatch((state / "head").read_text(encoding="utf-8", errors="replace"))
    _must(said and said[1] == instance, "head is not its four lines")
    assert said
    number = int(said[2])
    _must(number <= len(found), f"head names record {number} of {len(found)}")
    _must(_digest(found, number).hex() == said[3], f"head names another record {number}")


def _digest(found: list[Any], number: int) -> bytes:
    """What the record behind this one links to."""
    digest: bytes = found[number][3] if number < len(found) else sha256(cbor2.dumps(found[-1], canonical=True)).digest()
    return digest


def _check_snapshot(state: Path, instance: str, found: list[Any]) -> None:
    data = (state / "snapshot.cbor").read_bytes()
    _must(sha256(data[:-32]).digest() == data[-32:], "the snapshot is not whole")
    value = _cbor(data[:-32])
    _must(type(value) is list and len(value) == 11 and value[:3] == ["lever-snapshot", 1, instance], "what snapshot?")
    _, _, _, segment, seq, head, covered, *_ = value
    files = [state / "journal" / f"{number:08}.seg" for number in range(1, segment)]
    _must(sum(file.stat().st_size for file in files) == covered, "the snapshot is of other segments")
    _must(seq == sum(len(frames(file.read_bytes())) - 1 for file in files), f"the snapshot ends at record {seq}")
    _must(_digest(found, seq) == head, f"the snapshot is of another record {seq}")


def whole(state: Path) -> list[Any]:
    """The records of a state folder on which a broker may start. Raises Wrong for any other."""
    try:
        said = _FORMAT.fullmatch((state / "format").read_text(encoding="utf-8", errors="replace"))
        _must(said, "format is not its two lines")
        found = records(state)
        instance = found[0][6]["instance"]
        _must(said and said[1] == instance, "format names another instance")
        _check_payloads(state, instance, found)
        _check_head(state, instance, found)
        if (state / "snapshot.cbor").exists():
            _check_snapshot(state, instance, found)
    except OSError as error:
        raise Wrong(str(error)) from error
    return found
