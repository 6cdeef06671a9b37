"""Records of every kind, made from the page of the journal with a CBOR library: no line of the broker is in it."""

from __future__ import annotations

from typing import Any

import cbor2

from tests.journal.page import KINDS
from tests.vectors.case import Case, File, refused

_VALUES: dict[str, Any] = {
    "text": "worker-a",
    "digest": bytes(range(32)),
    "time": 1_767_225_600_000_000,
    "number": 3,
    "texts": ["a", "b"],
}
_REF: list[Any] = [bytes(range(32)), 1, 63, 500]
_PLACES = ("format", "seq", "at", "prev", "kind", "payloads", "body", "rest")


def _body(kind: str) -> dict[str, Any]:
    return {name: _VALUES[of] for name, of in KINDS[kind].items()}


def record(kind: Any = "directive_consumed", **changed: Any) -> bytes:
    """The second record of a journal, with some of its eight places changed."""
    body = changed.pop("body") if "body" in changed else _body(kind)
    places = dict(zip(_PLACES, (1, 2, 1_767_225_601_000_000, b"\xaa" * 32, kind, [_REF], body, 0), strict=True))
    return cbor2.dumps(list((places | changed).values()), canonical=True)


def _with(**changed: Any) -> bytes:
    """With some fields of its body changed."""
    return record(body=_body("directive_consumed") | changed)


_GOOD = record()
_REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "record"),
    "bytes behind it": (_GOOD + b"\x00", "record"),
    "cut short": (_GOOD[:-1], "record"),
    "an array of seven": (b"\x87" + _GOOD[1:-1], "record"),
    "an array of nine": (b"\x89" + _GOOD[1:] + b"\x00", "record"),
    "format 2": (record(format=2), "record.format"),
    "format true": (record(format=True), "record.format"),
    "number -1": (record(seq=-1), "record"),
    "number 2.0": (record(seq=2.0), "record"),
    "number 2^63": (record(seq=1 << 63), "record"),
    "a bignum": (record(seq=1 << 80), "record"),
    "a time in text": (record(at="2026-01-01T00:00:00Z"), "record"),
    "a link of 31 bytes": (record(prev=bytes(31)), "record"),
    "no link": (record(prev=None), "record"),
    "a kind that does not exist": (record("directive_stolen", body={}), "record.kind"),
    "a kind in bytes": (record(kind=b"directive_consumed", body={}), "record.kind"),
    "payloads in a map": (record(payloads={}), "record.payloads"),
    "a reference of three": (record(payloads=[_REF[:3]]), "record.payloads"),
    "a reference below zero": (record(payloads=[[*_REF[:2], -1, 1]]), "record.payloads"),
    "a reference's digest of 31 bytes": (record(payloads=[[bytes(31), *_REF[1:]]]), "record.payloads"),
    "a body in an array": (record(body=[]), "record.body"),
    "an empty body": (record(body={}), "record.body"),
    "a field too many": (_with(more=1), "record.body"),
    "a number for an id": (_with(id=1), "record.body.id"),
    "null for an id": (_with(id=None), "record.body.id"),
    "a fraction for a generation": (_with(generation=3.0), "record.body.generation"),
    "true for a generation": (_with(generation=True), "record.body.generation"),
    "a digest in text": (_with(key_digest="x" * 32), "record.body.key_digest"),
    "a longer spelling of 2": (_GOOD.replace(b"\x88\x01\x02", b"\x88\x01\x18\x02", 1), "record"),
    "no definite length": (b"\x9f" + _GOOD[1:] + b"\xff", "record"),
    "true for what is behind it": (record(rest=True), "record"),
    "less than nothing behind it": (record(rest=-1), "record"),
    "no number of what is behind it": (record(rest=None), "record"),
    "a tag": (b"\xd9\xd9\xf7" + _GOOD, "record"),
    "nested too deep": (b"\x81" * 200 + b"\x00", "record"),
    "an array that claims to be endless": (b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "record"),
}

FILE = File(
    "records",
    "The content of a record's frame: one of each kind, and what is none. `says`: the kind.",
    "docs/formats/journal.md",
    (
        *(Case(f"of kind {kind}", record(kind), says=kind) for kind in KINDS),
        *(refused(name, raw, where) for name, (raw, where) in _REFUSED.items()),
    ),
)
