"""Tool servers for one test, on uvloop as in the daemon; nothing of them is left after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.effects.tool_servers import ToolServers
from broker.effects.tool_servers.settings import Server
from tests.tool_servers.setting import Watch, children, until

Make = Callable[..., ToolServers]


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
async def make(tmp_path: Path, watch: Watch) -> AsyncIterator[Make]:
    """Build ToolServers from servers by name; they are stopped at the end, and then no new process lives."""
    before = children()
    made: list[ToolServers] = []

    def make(servers: Mapping[str, Server], **more: Any) -> ToolServers:
        given: dict[str, Any] = {"folder": tmp_path, "environ": os.environ, "hidden": [], **more}
        made.append(ToolServers(servers, steady=watch, chance=lambda: 0.0, **given))
        return made[-1]

    yield make
    for servers in made:
        await servers.stop()
        assert servers.connections == 0
    await until(lambda: not children() - before)
