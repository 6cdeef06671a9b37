"""Frames: a file cut anywhere is torn, a file altered anywhere is damaged, and the two are never confused."""

from __future__ import annotations

import zlib
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import frame
from broker.wire.frame import Damaged, Frame, Torn
from tests.wire import samples
from tests.wire.samples import FUZZ

RAW = b"a record"
FRAMED, OWN = frame.encode(RAW)


def test_layout() -> None:
    size = len(RAW).to_bytes(4, "big")
    assert sha256(RAW).digest() == OWN
    assert size + zlib.crc32(size).to_bytes(4, "big") + RAW + OWN == FRAMED


@FUZZ
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_frames_come_back_one_after_the_other(parts: list[bytes]) -> None:
    data = b"".join(frame.encode(part)[0] for part in parts)
    at, found = 0, []
    while (read := frame.read(memoryview(data), at)) is not None:
        assert isinstance(read, Frame)
        assert read.digest == sha256(read.raw).digest()
        found.append(read.raw)
        at = read.end
    assert found == parts
    assert at == len(data)


@pytest.mark.promise("P5")
@pytest.mark.parametrize("kept", range(1, len(FRAMED)))
def test_cut_anywhere_is_torn(kept: int) -> None:
    read = frame.read(FRAMED[:kept], 0)
    assert read == Torn(kept, len(FRAMED) if kept >= frame.HEAD_BYTES else 0)


@pytest.mark.promise("P27")
@pytest.mark.parametrize("at", range(len(FRAMED)))
@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_one_flipped_bit_anywhere_is_damage(at: int, bit: int) -> None:
    altered = FRAMED[:at] + bytes([FRAMED[at] ^ bit]) + FRAMED[at + 1 :]
    for behind in (b"", FRAMED):
        assert isinstance(frame.read(altered + behind, 0), Damaged)


def test_a_length_beyond_any_frame_is_damage_and_reads_nothing() -> None:
    size = (frame.MAX_FRAME_BYTES + 1).to_bytes(4, "big")
    read = frame.read(size + zlib.crc32(size).to_bytes(4, "big"), 0)
    assert read == Damaged("the length is beyond any frame's")


def test_zeros_as_a_file_system_may_leave_them_are_no_frame() -> None:
    assert isinstance(frame.read(bytes(4096), 0), Damaged)


@FUZZ
@given(samples.hostile([FRAMED, FRAMED + frame.encode(b"")[0]]), st.integers(0, 40))
def test_any_bytes_are_a_frame_torn_damaged_or_the_end(data: bytes, offset: int) -> None:
    read = frame.read(data, min(offset, len(data)))
    if isinstance(read, Frame):
        assert frame.encode(read.raw) == (data[min(offset, len(data)) : read.end], read.digest)
    else:
        assert read is None or isinstance(read, Torn | Damaged)
