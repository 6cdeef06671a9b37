"""Room: how much an agent may have kept of calls that no signature paid for, and which of them are old by now."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from broker.rules.rates import Bucket, TokenBucket
from broker.wire.names import Instant

ANSWER_BYTES: Final = 64 << 20
ARGUMENT_BYTES: Final = 8 << 20
"""Of the room so much is for arguments alone: however much is answered, calls can still be begun."""
CLAIM_BYTES: Final = 1024
"""What a call that may be repeated costs beside its arguments: it is remembered for two days."""
_ROOM: Final = TokenBucket(ANSWER_BYTES + ARGUMENT_BYTES, (ANSWER_BYTES + ARGUMENT_BYTES) / 86400)


def of_call(call_id: str, argument_bytes: int) -> int:
    """What a call takes of it when it is begun."""
    return argument_bytes + (CLAIM_BYTES if call_id else 0)


def fits_call(level: Bucket | None, at: Instant, size_bytes: int) -> bool:
    """Is there so much for a call that begins?"""
    return _ROOM.take(level, at, size_bytes)[1]


def fits_answer(level: Bucket | None, at: Instant, size_bytes: int) -> bool:
    """Is there so much for an answer?"""
    return _ROOM.take(level, at, size_bytes + ARGUMENT_BYTES)[1]


def taken(level: Bucket | None, at: Instant, size_bytes: int) -> Bucket:
    """The level once so much was written; as it was where that is more than there is."""
    return _ROOM.take(level, at, size_bytes)[0]


class Ends:
    """Ids by the time of their end, so that the old ones are found without a look at all the others."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, str]] = []

    def __iter__(self) -> Iterator[tuple[Instant, str]]:
        """All that is known, the oldest first."""
        return iter(sorted(self._heap))

    def add(self, id: str, at: Instant) -> None:
        """This ended then."""
        heappush(self._heap, (at, id))

    def before(self, border: int) -> Iterator[str]:
        """What ended before, each told once and forgotten here."""
        while self._heap and self._heap[0][0] < border:
            yield heappop(self._heap)[1]
