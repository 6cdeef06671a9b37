"""A reader of the journal's files written from docs/formats/journal.md alone: it shares no line with the broker's."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import cbor2


@dataclass(frozen=True)
class Seen:
    """A whole frame: where it begins and ends, and the value inside (a payload's bytes where it is no CBOR)."""

    start: int
    end: int
    raw: bytes

    @property
    def value(self) -> Any:
        return cbor2.loads(self.raw)


def frames(data: bytes) -> list[Seen]:
    """All frames of a whole file."""
    seen, at = [], 0
    while at < len(data):
        length = data[at : at + 4]
        assert data[at + 4 : at + 8] == zlib.crc32(length).to_bytes(4, "big")
        end = at + 8 + int.from_bytes(length, "big") + 32
        raw = data[at + 8 : end - 32]
        assert data[end - 32 : end] == sha256(raw).digest()
        seen.append(Seen(at, end, raw))
        at = end
    return seen


def records(state: Path) -> list[Any]:
    """The records of a whole journal, with every header and link checked as the page says."""
    found: list[Any] = []
    before = bytes(32)
    for number, file in enumerate(sorted((state / "journal").iterdir()), 1):
        header, *rest = frames(file.read_bytes())
        assert file.name == f"{number:08}.seg"
        assert header.value == ["lever-journal", 1, found[0][6]["instance"] if found else header.value[2], number,
                                len(found) + 1, before]  # fmt: skip
        for frame in rest:
            record = frame.value
            assert record[:2] == [1, len(found) + 1]
            assert record[3] == before
            before = sha256(frame.raw).digest()
            found.append(record)
    return found


def payload(state: Path, ref: list[Any]) -> bytes:
    """The bytes that a record's reference names."""
    digest, segment, offset, length = ref
    data = (state / "payloads" / f"{segment:08}.seg").read_bytes()
    raw = data[offset + 8 : offset + 8 + length]
    assert sha256(raw).digest() == digest == data[offset + 8 + length : offset + 40 + length]
    return raw
