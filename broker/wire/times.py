"""Times on the wire: strict RFC 3339 in, `Instant` (whole microseconds, UTC) inside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from broker.errors import Malformed
from broker.wire.names import Instant

SECOND = 1_000_000
_GRAMMAR = re.compile(
    r"(\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d{1,9}))?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def parse(raw: object, where: str) -> Instant:
    """A time with an offset, as an Instant.

    Digits below a microsecond round up: for a clock of whole microseconds both `not_before <= now` and
    `now < expires_at` then say exactly what the written time says. Raises Malformed.
    """
    found = _GRAMMAR.fullmatch(raw) if isinstance(raw, str) else None
    if not found:
        raise Malformed(where, "expected a time like 2026-01-31T09:00:00Z")
    stamp, fraction, offset = found.groups()
    try:
        since = datetime.fromisoformat(stamp + offset) - _EPOCH
    except ValueError as error:
        raise Malformed(where, "no such date") from error
    at = since // _MICROSECOND + (-(-int(fraction.ljust(9, "0")) // 1000) if fraction else 0)
    # Beyond these an offset or a rounded fraction leads out of the years that can be written again.
    if not FIRST <= at <= LAST:
        raise Malformed(where, "no such date in UTC")
    return Instant(at)


def show(at: Instant) -> str:
    """An Instant as RFC 3339 in UTC, with microseconds only when there are any."""
    moment = _EPOCH + timedelta(microseconds=at)
    return moment.isoformat().replace("+00:00", "Z")
