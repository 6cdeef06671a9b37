"""Times on the wire: strict RFC 3339 in, `Instant` (whole microseconds, UTC) inside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from broker.errors import Malformed
from broker.wire.names import Instant

SECOND = 1_000_000
_GRAMMAR = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse(raw: object, where: str) -> Instant:
    """A time with an offset, as an Instant.

    Digits below a microsecond round up: for a clock of whole microseconds both `not_before <= now` and
    `now < expires_at` then say exactly what the written time says. Raises Malformed.
    """
    found = _GRAMMAR.fullmatch(raw) if isinstance(raw, str) else None
    if not found:
        raise Malformed(where, "expected a time like 2026-01-31T09:00:00Z")
    year, month, day, hour, minute, second = (int(found[i]) for i in range(1, 7))
    offset_hours, offset_minutes = int(found[9] or 0), int(found[10] or 0)
    if offset_hours > 23 or offset_minutes > 59:
        raise Malformed(where, "no such offset")
    offset = timedelta(hours=offset_hours, minutes=offset_minutes)
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise Malformed(where, "no such date or time of day") from error
    since = whole - _EPOCH - (-offset if found[8] == "-" else offset)
    nanoseconds = int((found[7] or "").ljust(9, "0"))
    return Instant(since // timedelta(microseconds=1) + -(-nanoseconds // 1000))


def show(at: Instant) -> str:
    """An Instant as RFC 3339 in UTC, with microseconds only when there are any."""
    moment = _EPOCH + timedelta(microseconds=at)
    return moment.isoformat().replace("+00:00", "Z")
