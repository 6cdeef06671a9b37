"""A segment's header is read in its one form of bytes, or not at all."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.journal import header
from broker.journal.header import PayloadsHeader, RecordsHeader
from broker.wire.names import Digest, Instance
from tests.wire import samples

PREV = Digest(bytes(range(32)))
OF_RECORDS = RecordsHeader(Instance("demo"), 2, 7, PREV)
OF_PAYLOADS = PayloadsHeader(Instance("demo"), 3)
RECORDS: list[Any] = ["lever-journal", 1, "demo", 2, 7, PREV]
PAYLOADS: list[Any] = ["lever-payloads", 1, "demo", 3]


@pytest.mark.parametrize(("value", "whole"), [(OF_RECORDS, RECORDS), (OF_PAYLOADS, PAYLOADS)], ids=["records", "bytes"])
def test_layout(value: RecordsHeader | PayloadsHeader, whole: list[Any]) -> None:
    assert cbor2.loads(value.encode()) == whole
    assert header.decode(value.encode()) == value


def changed(whole: list[Any], place: int, value: object) -> bytes:
    return cbor2.dumps([*whole[:place], value, *whole[place + 1 :]])


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b"", "header"),
        (OF_RECORDS.encode() + b"\x00", "header"),
        (OF_RECORDS.encode()[:-1], "header"),
        (cbor2.dumps({}), "header.magic"),
        (cbor2.dumps(["lever-journal"]), "header.magic"),
        (changed(RECORDS, 0, "lever"), "header.magic"),
        (changed(RECORDS, 0, []), "header.magic"),
        (changed(RECORDS, 0, b"lever-journal"), "header.magic"),
        (changed(RECORDS, 0, "lever-payloads"), "header"),
        (changed(PAYLOADS, 0, "lever-journal"), "header"),
        (changed(RECORDS, 1, 0), "header.format"),
        (changed(RECORDS, 1, True), "header.format"),
        (changed(RECORDS, 1, 1.0), "header.format"),
        (changed(RECORDS, 2, "Demo"), "header.instance"),
        (changed(RECORDS, 2, b"demo"), "header.instance"),
        (changed(PAYLOADS, 2, ""), "header.instance"),
        (changed(RECORDS, 3, 0), "header"),
        (changed(RECORDS, 3, True), "header"),
        (changed(RECORDS, 3, 2.0), "header"),
        (changed(RECORDS, 4, 0), "header"),
        (changed(RECORDS, 5, bytes(31)), "header"),
        (changed(RECORDS, 5, "x" * 32), "header"),
        (changed(PAYLOADS, 3, 0), "header"),
        (cbor2.dumps([*PAYLOADS, 1]), "header"),
        (OF_PAYLOADS.encode()[:-1] + b"\x18\x03", "header"),
    ],
    ids=range(25),
)
def test_refuses(raw: bytes, where: str) -> None:
    with pytest.raises(Malformed) as caught:
        header.decode(raw)
    assert caught.value.where == where


def test_a_newer_format_is_named_as_such() -> None:
    with pytest.raises(Malformed, match="a newer lever wrote"):
        header.decode(changed(RECORDS, 1, 2))


@samples.FUZZ
@given(samples.hostile([OF_RECORDS.encode(), OF_PAYLOADS.encode()]))
def test_malformed_or_the_one_header_with_these_bytes(raw: bytes) -> None:
    found = samples.malformed_or(header.decode, raw)
    if isinstance(found, RecordsHeader | PayloadsHeader):
        assert found.encode() == raw


@samples.FUZZ
@given(st.integers(1, 1 << 62), st.integers(1, 1 << 62))
def test_every_header_comes_back(number: int, first_seq: int) -> None:
    value = RecordsHeader(Instance("demo"), number, first_seq, PREV)
    assert header.decode(value.encode()) == value
