"""What is known of the way to a server, and of one call's way along it: the evidence for `not sent` and `unknown`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.effects.tool_servers.direct import Direct


@dataclass(slots=True)
class Link:
    """One connection. lost: why nothing comes over it any more; worn: no further call is to be sent over it; direct:
    the way of tool calls past the SDK, where there is one; tools_changed: takes the server's word that they did; said:
    the last line that it wrote to its standard error, escaped."""

    lost: str = ""
    worn: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    direct: Direct | None = None
    tools_changed: Callable[[], None] = lambda: None
    said: Callable[[], str] = str

    def lose(self, why: str) -> None:
        """The first reason stands."""
        self.lost = self.lost or why
        self.wear()

    def wear(self) -> None:
        """What is in hand goes on."""
        self.worn = True
        self.changed.set()


@dataclass(slots=True)
class Passage:
    """One request over HTTP. unsent: why nothing of it left; astray: why its answer is none of the server's."""

    unsent: str = ""
    astray: str = ""


PASSAGE: ContextVar[Passage | None] = ContextVar("PASSAGE", default=None)
"""The request that the current task sends: the SDK carries its sender's context to the transport."""
