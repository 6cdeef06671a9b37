"""The first segments of a new journal: the only way in which an empty one comes to be."""

from __future__ import annotations

from broker.errors import Fatal
from broker.journal import head, segments
from broker.journal.disk import Disk, refusal
from broker.journal.header import NO_DIGEST, PayloadsHeader, RecordsHeader
from broker.journal.state import StateFolder
from broker.wire import frame, record_codec
from broker.wire.head import Head
from broker.wire.names import Digest, Instant
from broker.wire.records import InstanceCreated, Record

FIRST_SEGMENT = 1
FIRST_SEQ = 1


def create(folder: StateFolder, disk: Disk, ca_digest: Digest, at: Instant) -> None:
    """Write the journal's first record, InstanceCreated, durably. ca_digest: SHA-256 of the CA certificate (DER).

    Raises Fatal when anything is in the folders already, or when the disk refuses.
    """
    instance = folder.instance
    record = Record(FIRST_SEQ, at, NO_DIGEST, (), InstanceCreated(instance, ca_digest))
    records = (RecordsHeader(instance, FIRST_SEGMENT, FIRST_SEQ, NO_DIGEST).encode(), record_codec.encode(record))
    payloads = (PayloadsHeader(instance, FIRST_SEGMENT).encode(),)
    try:
        for place in (folder.journal, folder.payloads):
            if disk.names(place):
                raise Fatal(
                    f"{place} is not empty: a journal is made where none is",
                    hint=f"look at what is there: ls -la {place}",
                )
        # The records last: a journal whose first record can be read has all the rest too.
        disk.close(segments.make(disk, folder.payloads, FIRST_SEGMENT, _framed(payloads)))
        head.keep(disk, folder.path, instance, Head(FIRST_SEQ, frame.encode(records[1])[1]))
        disk.close(segments.make(disk, folder.journal, FIRST_SEGMENT, _framed(records)))
    except OSError as error:
        raise refusal("make a journal", folder.path, error) from error


def _framed(raws: tuple[bytes, ...]) -> bytes:
    return b"".join(frame.encode(raw)[0] for raw in raws)
