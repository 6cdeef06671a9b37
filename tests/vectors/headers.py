"""Headers of segments, made with a CBOR library and not with the broker's own writer."""

from __future__ import annotations

from typing import Any

import cbor2

from tests.vectors.case import Case, File, refused

RECORDS: list[Any] = ["lever-journal", 1, "demo", 2, 7, b"\xaa" * 32]
PAYLOADS: list[Any] = ["lever-payloads", 1, "demo", 3]


def _raw(value: Any) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _changed(header: list[Any], place: int, value: Any) -> bytes:
    return _raw([*header[:place], value, *header[place + 1 :]])


_REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "header"),
    "not CBOR": (b"\xff", "header"),
    "bytes behind it": (_raw(RECORDS) + b"\x00", "header"),
    "cut short": (_raw(RECORDS)[:-1], "header"),
    "a map": (_raw({}), "header.magic"),
    "another magic": (_changed(RECORDS, 0, "lever-journals"), "header.magic"),
    "the other magic": (_changed(RECORDS, 0, "lever-payloads"), "header"),
    "format 2": (_changed(RECORDS, 1, 2), "header.format"),
    "format true": (_changed(RECORDS, 1, True), "header.format"),
    "format 1.0": (_changed(RECORDS, 1, 1.0), "header.format"),
    "an instance with a capital": (_changed(RECORDS, 2, "Demo"), "header.instance"),
    "an instance in bytes": (_changed(PAYLOADS, 2, b"demo"), "header.instance"),
    "segment 0": (_changed(RECORDS, 3, 0), "header"),
    "segment -1": (_changed(PAYLOADS, 3, -1), "header"),
    "record 0": (_changed(RECORDS, 4, 0), "header"),
    "a digest of 31 bytes": (_changed(RECORDS, 5, bytes(31)), "header"),
    "a field too many": (_raw([*PAYLOADS, 1]), "header"),
    "a field too few": (_raw(RECORDS[:-1]), "header"),
    "a longer spelling of 3": (_raw(PAYLOADS)[:-1] + b"\x18\x03", "header"),
    "no definite length": (b"\x9f" + _raw(PAYLOADS)[1:] + b"\xff", "header"),
}

FILE = File(
    "headers",
    "The content of a segment's first frame.",
    "docs/formats/journal.md",
    (
        Case("of records", _raw(RECORDS), says="records 2"),
        Case("of payloads", _raw(PAYLOADS), says="payloads 3"),
        *(refused(name, raw, where) for name, (raw, where) in _REFUSED.items()),
    ),
)
