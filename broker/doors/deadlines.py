"""How long a connection may keep us waiting, and for what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache


class Waiting(Enum):
    """What a connection owes us at this moment. One at a time; each change starts its time anew."""

    NOTHING = auto()  # it is our turn: a handler works, or a long poll waits
    FIRST = auto()  # the first byte of the first request
    IDLE = auto()  # the next request
    HEAD = auto()  # the rest of a request's head
    BODY = auto()  # the rest of a body that a handler needs
    DRAIN = auto()  # the rest of a body whose request is already answered
    READ = auto()  # that it reads what we wrote
    CLOSE = auto()  # that the connection is gone


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, sizes in bytes. One message is a request's head, body and framing together.

    max_connections: beyond it, a connection without a certificate that keeps us waiting makes room, else one of the
    agent that holds most; if there is none, the newcomer is closed. max_connections_per_agent: by the identity in a
    certificate. max_handshakes: unfinished ones, beyond which the oldest is dropped.
    """

    handshake_s: float = 5.0
    first_s: float = 5.0
    header_s: float = 5.0
    body_s: float = 10.0
    idle_s: float = 75.0
    write_s: float = 10.0
    close_s: float = 2.0
    max_header_bytes: int = 16384
    max_message_bytes: int = 1 << 20
    max_pipelined: int = 16
    max_connections: int = 1024
    max_connections_per_agent: int = 256
    max_handshakes: int = 256

    def sweep_s(self) -> float:
        """How often the door looks for connections that are overdue: within a second, sooner for shorter limits."""
        shortest = min(self.first_s, self.header_s, self.body_s, self.idle_s, self.write_s, self.close_s)
        return min(1.0, shortest / 4)


@cache
def allowed_s(limits: Limits) -> Mapping[Waiting, float]:
    """How long each kind of waiting may last; one mapping for all connections of a door."""
    return {
        Waiting.NOTHING: math.inf,
        Waiting.FIRST: limits.first_s,
        Waiting.IDLE: limits.idle_s,
        Waiting.HEAD: limits.header_s,
        Waiting.BODY: limits.body_s,
        Waiting.DRAIN: limits.body_s,
        Waiting.READ: limits.write_s,
        Waiting.CLOSE: limits.close_s,
    }
