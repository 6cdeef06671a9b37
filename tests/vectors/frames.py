"""Frames of a segment: whole, torn where a file may end, damaged where no writer left it so."""

from __future__ import annotations

import zlib
from hashlib import sha256

from tests.vectors.case import Case, File, refused


def framed(content: bytes) -> bytes:
    """A whole frame."""
    return length(len(content)) + content + sha256(content).digest()


def length(size: int) -> bytes:
    """A length and its checksum."""
    raw = size.to_bytes(4, "big")
    return raw + zlib.crc32(raw).to_bytes(4, "big")


_WHOLE = framed(b"content")
_AT = len(_WHOLE)
_TAKEN = {
    "seven bytes": (_WHOLE, "content"),
    "nothing inside": (framed(b""), ""),
    "another frame behind it": (_WHOLE + framed(b"more"), "content"),
    "a torn frame behind it": (_WHOLE + b"\x00\x00", "content"),
}
_TORN = {
    "one byte": _WHOLE[:1],
    "a head that is cut": _WHOLE[:7],
    "a head alone": _WHOLE[:8],
    "half its content": _WHOLE[:12],
    "no digest": _WHOLE[:15],
    "all but one byte": _WHOLE[:-1],
    "the head of the longest frame": length(1 << 24),
}
_DAMAGED = {
    "zeros": bytes(_AT),
    "a length that was altered": bytes([0, 0, 0, 8]) + _WHOLE[4:],
    "a checksum that was altered": _WHOLE[:7] + b"\x00" + _WHOLE[8:],
    "content that was altered": _WHOLE.replace(b"content", b"contend"),
    "a digest that was altered": _WHOLE[:-1] + b"\x00",
    "longer than any frame": length((1 << 24) + 1) + bytes(100),
    "the longest length": length(0xFFFFFFFF),
}

FILE = File(
    "frames",
    "The bytes of a segment from some frame's start to the end of the file. Torn: the file ends inside the frame; "
    "damaged: no writer left it so. `says`: the content, as text.",
    "docs/formats/journal.md",
    (
        *(Case(name, raw, says=content) for name, (raw, content) in _TAKEN.items()),
        *(refused(name, raw, "", "Torn") for name, raw in _TORN.items()),
        *(refused(name, raw, "", "Damaged") for name, raw in _DAMAGED.items()),
    ),
)
