"""What servers write to their standard error, for the log: escaped, one record a line, no more than a log can bear."""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.rules.rates import Bucket, TokenBucket
from broker.wire.escape import escaped
from broker.wire.names import Instant

RATE = TokenBucket(capacity=40, refill_per_s=1)
_LONGEST = 4096
log = logging.getLogger("lever.tool_servers")


class Speech:
    """One process's lines. steady: a clock that nobody sets."""

    def __init__(self, server: str, steady: Callable[[], Instant]) -> None:
        self._server = server
        self._steady = steady
        self._bucket: Bucket | None = None
        self._rest = bytearray()
        self._untold = 0
        self._last = ""

    def last(self) -> str:
        """The last line so far, escaped, whether the log could bear it or not."""
        return self._last

    def feed(self, data: bytes) -> None:
        """What came next."""
        *lines, rest = (bytes(self._rest) + data).split(b"\n")
        self._rest[:] = rest[:_LONGEST]
        for line in lines:
            self._say(line)

    def end(self) -> None:
        """Nothing more will come."""
        if self._rest:
            self._say(bytes(self._rest))
            self._rest.clear()
        if self._untold:
            log.warning("lines of a tool server were left out", extra={"server": self._server, "lines": self._untold})
            self._untold = 0

    def _say(self, line: bytes) -> None:
        if not (text := line.decode("utf-8", "replace").strip()):
            return
        self._last = escaped(text)
        self._bucket, allowed = RATE.take(self._bucket, self._steady())
        if not allowed:
            self._untold += 1
            return
        left_out, self._untold = self._untold, 0
        extra = {"server": self._server, "line": self._last, **({"left_out_before": left_out} if left_out else {})}
        log.info("a tool server says", extra=extra)
