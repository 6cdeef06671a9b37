"""How records and payloads lie in a file: `length | crc32(length) | bytes | SHA-256(bytes)`.

The length has a checksum of its own, so that a frame that was cut short (a torn tail) can't be confused with one whose
length was altered (damage). docs/formats/journal.md is the normative page.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from hashlib import sha256

from broker.wire.names import Digest

HEAD_BYTES = 8
TAIL_BYTES = 32
OVERHEAD_BYTES = HEAD_BYTES + TAIL_BYTES
MAX_FRAME_BYTES = 1 << 24
_HEAD = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Frame:
    """Whole and undamaged. end: the offset just behind it."""

    raw: bytes
    digest: Digest
    end: int


@dataclass(frozen=True, slots=True)
class Torn:
    """The file ends inside this frame. expected: its whole size where the head says so, else 0."""

    found: int
    expected: int


@dataclass(frozen=True, slots=True)
class Damaged:
    """Bytes that no writer left behind."""

    why: str


def digest(raw: bytes) -> Digest:
    """SHA-256."""
    return Digest(sha256(raw).digest())


def encode(raw: bytes) -> tuple[bytes, Digest]:
    """The frame of these bytes, and their digest."""
    size = len(raw)
    own = digest(raw)
    return b"".join((_HEAD.pack(size, zlib.crc32(size.to_bytes(4, "big"))), raw, own)), own


def read(data: bytes | memoryview, offset: int) -> Frame | Torn | Damaged | None:
    """The frame that starts at `offset`; None at the end of the data."""
    left = len(data) - offset
    if left <= 0:
        return None
    if left < HEAD_BYTES:
        return Torn(left, 0)
    size, check = _HEAD.unpack_from(data, offset)
    if check != zlib.crc32(size.to_bytes(4, "big")):
        return Damaged("the length and its checksum disagree")
    if size > MAX_FRAME_BYTES:
        return Damaged("the length is beyond any frame's")
    whole = OVERHEAD_BYTES + size
    if left < whole:
        return Torn(left, whole)
    raw = bytes(data[offset + HEAD_BYTES : offset + HEAD_BYTES + size])
    own = digest(raw)
    if own != bytes(data[offset + HEAD_BYTES + size : offset + whole]):
        return Damaged("the bytes and their digest disagree")
    return Frame(raw, own, offset + whole)
