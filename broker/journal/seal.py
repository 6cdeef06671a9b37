"""From drafts to bytes with a place: the number, the link to the record before, the offset of each payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.errors import Malformed
from broker.journal.header import PayloadsHeader, RecordsHeader
from broker.journal.segments import Piece, Position
from broker.wire import frame, record_codec
from broker.wire.head import Head
from broker.wire.names import Digest, Instance, Instant
from broker.wire.records import Draft, PayloadRef, Record


@dataclass(slots=True)
class Sealed:
    """What one append put in line: the records, and the bytes for both kinds of segment. head: the end of it."""

    head: Head
    records: list[Record] = field(default_factory=list)
    record_pieces: list[Piece] = field(default_factory=list)
    payload_pieces: list[Piece] = field(default_factory=list)


class Sealer:
    """Knows the end of the chain as it will be once everything in line is written."""

    __slots__ = ("_head", "_instance", "_payloads", "_records", "_segment_bytes", "next_seq")

    def __init__(
        self, instance: Instance, next_seq: int, head: Digest, records: Position, payloads: Position, segment_bytes: int
    ) -> None:
        self.next_seq = next_seq
        self._instance = instance
        self._head = head
        self._records = records
        self._payloads = payloads
        self._segment_bytes = segment_bytes

    def seal(self, at: Instant, drafts: Sequence[Draft]) -> Sealed:
        """Give all drafts their places, or none, in one segment: they are one turn, and a start takes all or none.

        Raises Malformed for one that is too large for the format.
        """
        before = self.next_seq, self._head, self._records, self._payloads
        sealed = Sealed(Head(self.next_seq - 1, self._head))
        try:
            for rest, draft in zip(range(len(drafts) - 1, -1, -1), drafts, strict=True):
                refs = tuple([self._payload(raw, sealed) for raw in draft.payloads]) if draft.payloads else ()
                self._record(Record(self.next_seq, at, self._head, refs, draft.fact, rest), sealed)
            sealed.head = Head(self.next_seq - 1, self._head)
        except BaseException:
            self.next_seq, self._head, self._records, self._payloads = before
            raise
        return sealed

    def _record(self, record: Record, sealed: Sealed) -> None:
        raw = record_codec.encode(record)
        if len(raw) > record_codec.MAX_RECORD_BYTES:
            raise Malformed("record", f"beyond {record_codec.MAX_RECORD_BYTES} bytes")
        (segment, offset), opens = self._records, b""
        if offset >= self._segment_bytes and not sealed.records:
            segment += 1
            opens = frame.encode(RecordsHeader(self._instance, segment, record.seq, record.prev).encode())[0]
            offset = len(opens)
        data, self._head = frame.encode(raw)
        self._records = Position(segment, offset + len(data))
        self.next_seq += 1
        sealed.records.append(record)
        sealed.record_pieces.append(Piece(segment, data, opens))

    def _payload(self, raw: bytes, sealed: Sealed) -> PayloadRef:
        if len(raw) > frame.MAX_FRAME_BYTES:
            raise Malformed("payload", f"beyond {frame.MAX_FRAME_BYTES} bytes")
        (segment, offset), opens = self._payloads, b""
        if offset >= self._segment_bytes:
            segment += 1
            opens = frame.encode(PayloadsHeader(self._instance, segment).encode())[0]
            offset = len(opens)
        data, digest = frame.encode(raw)
        self._payloads = Position(segment, offset + len(data))
        sealed.payload_pieces.append(Piece(segment, data, opens))
        return PayloadRef(digest, segment, offset, len(raw))
