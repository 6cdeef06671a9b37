"""What can come of one call upstream: an answer, an error that upstream gave, nothing sent, or nobody knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from broker.errors import BrokerError, Unavailable
from broker.wire.names import Cn


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose process or session it is: nothing is shared with another agent, nor with a former generation."""

    cn: Cn
    generation: int


@dataclass(frozen=True, slots=True)
class Done:
    """Upstream carried it out. result: its CallToolResult, as JSON."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """Upstream answered with an error. error: JSON, a CallToolResult with isError, or else {code, message, data?}."""

    error: bytes
    is_result: bool


Outcome: TypeAlias = Done | Failed


class NotSent(Unavailable):
    """Provably nothing of the call was sent. `what` holds no word of the server's own."""


class Unknown(BrokerError):
    """The call was sent, and what came of it can't be known. `why` holds no word of the server's own."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
