"""How long a server's list takes to read is its own choice: it is bounded, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.effects.tool_servers import catalogue
from broker.errors import Malformed
from broker.wire import catalogue as definitions
from broker.wire.catalogue import Listing
from broker.wire.strict_json import JsonObject
from tests.tool_servers.conftest import Make
from tests.tool_servers.setting import AServer, ask, looked, until

WORDS = (
    "A sentence of about a hundred and twenty characters which says what an argument is, what it may be, and why so. "
)


def rich(number: int) -> JsonObject:
    """A tool with ten arguments, each told in 120 characters, and as much said of its output."""
    argument: JsonObject = {
        "type": "string",
        "description": WORDS,
        "examples": ["a", "b"],
        "enum": ["a", "b", "c", "d"],
    }
    schema: JsonObject = {"type": "object", "properties": {f"argument_{n}": argument for n in range(10)}}
    return {"name": f"tool_{number}", "description": WORDS * 8, "inputSchema": schema, "outputSchema": schema}


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def hostile(value: Any, tools: int) -> list[Any]:
    return [{"name": f"t{n}", "inputSchema": {"type": "object", "x": value}} for n in range(tools)]


async def defined(tools: list[Any], a_page: int = 50) -> tuple[object, ...]:
    """What comes of these tools, page by page."""

    async def page(cursor: str | None) -> JsonObject:
        start = int(cursor or 0)
        more: JsonObject = {"nextCursor": str(start + a_page)} if start + a_page < len(tools) else {}
        return {"tools": tools[start : start + a_page], **more}

    return await catalogue.definitions(page)


async def test_two_hundred_rich_tools_are_far_within_the_bounds() -> None:
    assert len(await defined([rich(n) for n in range(200)])) == 200


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        (hostile([nested(50)] * 1500, 4), "more than 131072 values"),
        (hostile([1] * 30_000, 5), "more than 131072 values"),
        (hostile([{}] * 30_000, 5), "more than 131072 values"),
        (hostile("x" * 250_000, 9), "more than 2097152 bytes"),
    ],
    ids=["lists in lists", "numbers", "objects", "text"],
)
@pytest.mark.parametrize("a_page", [1, 50])
async def test_a_list_that_takes_long_is_refused_whole(tools: list[Any], why: str, a_page: int) -> None:
    with pytest.raises(Malformed, match=why):
        await defined(tools, a_page)


async def test_nobody_waits_while_a_servers_list_is_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = make({"s": AServer(), "hostile": AServer()})
    await looked(servers)
    reading, go, real = threading.Event(), threading.Event(), definitions.listing

    def slow(server: str, *words: Any) -> Listing:
        if server == "hostile":
            reading.set()
            assert go.wait(60), "somebody waited for it"
        return real(server, *words)

    monkeypatch.setattr(definitions, "listing", slow)
    async with asyncio.TaskGroup() as group:
        look = group.create_task(looked(servers, None, "hostile"))
        await until(reading.is_set)
        assert await ask(servers, "pid")
        go.set()
    assert look.result().tools
