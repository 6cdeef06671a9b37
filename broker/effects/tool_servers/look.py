"""What a server was seen to define, on the connection that it was asked over."""

from __future__ import annotations

from dataclasses import dataclass

from broker.wire.catalogue import Listing


@dataclass(frozen=True, slots=True)
class Look:
    """It counts for calls over its own connection, until the server says that its tools changed. at: when it was asked
    for, by the clock of who asked."""

    at: float
    listing: Listing
