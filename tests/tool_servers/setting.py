"""Tool servers as a broker has them, and what of them is still alive."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.config import Reference, Sandbox
from broker.effects.tool_servers import Done, Failed, Holder, Outcome, ToolServers
from broker.wire.catalogue import Listing
from broker.wire.names import Cn, Instant

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "fakes" / "tool_server.py"
A = Holder(Cn("worker-a"), 1)
B = Holder(Cn("worker-b"), 1)


@dataclass(frozen=True)
class AServer:
    """A server as the configuration would have it, with times shorter than it allows."""

    command: tuple[str, ...] | None = (sys.executable, "-S", str(FAKE))
    url: str | None = None
    env: Mapping[str, Reference] = field(default_factory=dict)
    headers: Mapping[str, Reference] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    timeout_s: float = 30
    max_output_bytes: int = 100_000
    idle_s: float = 300


def fake(how: str = "", **more: Any) -> AServer:
    return AServer(command=(sys.executable, "-S", str(FAKE), how), **more)


@dataclass
class Watch:
    """A clock that stands still until it is set."""

    now: Instant = field(default=Instant(10**12))

    def __call__(self) -> Instant:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now = Instant(self.now + int(seconds * 1_000_000))


def text_of(outcome: Done | Failed) -> str:
    """The text that a tool answered."""
    assert isinstance(outcome, Done)
    found: str = json.loads(outcome.result)["content"][0]["text"]
    return found


async def looked(servers: ToolServers, holder: Holder | None = A, server: str = "s") -> Listing:
    """What the holder's process defines: as it was seen, or as it is seen now."""
    found = servers.looked(holder, server) or await servers.look(holder, server, 0, -1)
    return found.listing


async def sent(
    servers: ToolServers, holder: Holder, server: str, tool: str, arguments: bytes, timeout_s: float
) -> Outcome:
    """A call as the gateway makes it, whose tool is accepted as it is seen."""
    pinned = (await looked(servers, holder, server)).tools[tool]
    return await servers.call(holder, pinned, arguments, timeout_s)


async def ask(servers: ToolServers, tool: str, holder: Holder = A, server: str = "s", **given: Any) -> str:
    return text_of(await sent(servers, holder, server, tool, json.dumps(given).encode(), 30))


async def until(true: Callable[[], bool]) -> None:
    """Wait for what has to come, and no longer than any machine takes for it."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def children() -> set[int]:
    """Every live descendant of this process."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words[0] != "Z":
                parents[int(entry)] = int(words[1])
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in found | {os.getpid()}} - found:
        found |= more
    return found
