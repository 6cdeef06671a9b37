"""The first frame of every segment: which file of which journal this is."""

from __future__ import annotations

from dataclasses import dataclass

import cbor2

from broker.errors import Malformed
from broker.wire import names
from broker.wire.names import Digest, Instance

FORMAT = 1
RECORDS_MAGIC = "lever-journal"
PAYLOADS_MAGIC = "lever-payloads"
NO_DIGEST = Digest(bytes(32))


@dataclass(frozen=True, slots=True)
class RecordsHeader:
    """Of `journal/<number>.seg`: the number of its first record, the digest of the record before that one."""

    instance: Instance
    number: int
    first_seq: int
    prev: Digest

    def encode(self) -> bytes:
        """The array [magic, format, instance, number, first seq, prev]."""
        value = [RECORDS_MAGIC, FORMAT, self.instance, self.number, self.first_seq, self.prev]
        return cbor2.dumps(value, canonical=True)


@dataclass(frozen=True, slots=True)
class PayloadsHeader:
    """Of `payloads/<number>.seg`, which has no chain: the records hold the digests."""

    instance: Instance
    number: int

    def encode(self) -> bytes:
        """The array [magic, format, instance, number]."""
        return cbor2.dumps([PAYLOADS_MAGIC, FORMAT, self.instance, self.number], canonical=True)


def decode(raw: bytes) -> RecordsHeader | PayloadsHeader:
    """The header that these bytes are. Raises Malformed for anything that `encode` would not have written."""
    try:
        value = cbor2.loads(raw, allow_indefinite=False, allow_duplicate_keys=False, max_depth=4)
    except Exception as error:  # cbor2 documents one error type and raises others for hostile bytes
        raise Malformed("header", "not CBOR") from error
    magic = value[0] if type(value) is list and len(value) >= 2 else None
    if type(magic) is not str or magic not in (RECORDS_MAGIC, PAYLOADS_MAGIC):
        raise Malformed("header.magic", f"expected {RECORDS_MAGIC} or {PAYLOADS_MAGIC}")
    if type(value[1]) is not int or value[1] != FORMAT:
        newer = ", which a newer lever wrote" if type(value[1]) is int and value[1] > FORMAT else ""
        raise Malformed("header.format", f"expected {FORMAT}, found {value[1]!r}{newer}")
    header = _records(value[2:]) if magic == RECORDS_MAGIC else _payloads(value[2:])
    if header.encode() != raw:
        raise Malformed("header", "not in deterministic form")
    return header


def _records(fields: list[object]) -> RecordsHeader:
    match fields:
        case [instance, int(number), int(first_seq), bytes(prev)] if len(prev) == 32 and _counts(number, first_seq):
            return RecordsHeader(names.instance(instance, "header.instance"), number, first_seq, Digest(prev))
    raise Malformed("header", "expected [magic, format, instance, number, first seq, digest before]")


def _payloads(fields: list[object]) -> PayloadsHeader:
    match fields:
        case [instance, int(number)] if _counts(number):
            return PayloadsHeader(names.instance(instance, "header.instance"), number)
    raise Malformed("header", "expected [magic, format, instance, number]")


def _counts(*numbers: int) -> bool:
    return all(type(number) is int and number >= 1 for number in numbers)
