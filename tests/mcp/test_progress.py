"""Progress while a call waits: for clients that asked, until the answer, and nothing is longer for it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import ClientSession
from mcp.shared.memory import create_client_server_memory_streams
from mcp.types import CallToolResult, TextContent

from broker.errors import Malformed
from broker.wire.names import Instant
from lever.agent.failures import NotReachable
from lever.agent.mcp.calls import Desk
from lever.agent.mcp.server import build

DONE = {"content": [{"type": "text", "text": "done"}]}


class Waits:
    """In place of the broker: it answers once a test says so. asked: what each call was given."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None

    def call(self, *words: Any) -> dict[str, Any]:
        self.asked.append(words)
        assert self.go.wait(60)
        if self.fails:
            raise self.fails
        return DONE


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    made = Waits()
    monkeypatch.setattr(Desk, "call", lambda desk, *words: made.call(*words))
    monkeypatch.setattr(Desk, "listed", lambda desk: [])
    return made


@asynccontextmanager
async def client(heard: list[Any]) -> AsyncIterator[ClientSession]:
    """The official client over messages, as over standard input and output. heard: whatever comes unasked."""

    async def hear(message: Any) -> None:
        heard.append(message)

    none: Any = None
    server = build(Desk(none, lambda: Instant(0), str, none), "1", progress_every_s=0.001)
    async with create_client_server_memory_streams() as (ours, theirs), anyio.create_task_group() as group:
        group.start_soon(server.run, *theirs, server.create_initialization_options())
        async with ClientSession(*ours, message_handler=hear) as session:
            await session.initialize()
            yield session
        group.cancel_scope.cancel()


def text_of(result: Any) -> str:
    assert isinstance(result, CallToolResult)
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_who_asks_for_it_hears_how_long_it_takes_until_the_answer_and_no_longer(waits: Waits) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))
        if len(told) == 3:
            waits.go.set()

    async with client([]) as session:
        meta: Any = {"lever.dev/wait_s": 30}
        result = await session.call_tool("s__echo", {}, progress_callback=progress, meta=meta)
        assert text_of(result) == "done"
        seen = len(told)
        await session.send_ping()
        assert len(told) == seen
    assert [done for done, *_ in told] == sorted({done for done, *_ in told}), "it only grows"
    assert {(total, message) for _, total, message in told} == {
        (None, "the call is under way, or waits for the operator")
    }
    assert [words[-1] for words in waits.asked] == [30], "one call, and the wait that was asked for"


async def test_who_does_not_ask_hears_nothing(waits: Waits) -> None:
    heard: list[Any] = []
    async with client(heard) as session:
        async with anyio.create_task_group() as both:
            both.start_soon(session.call_tool, "s__echo", {})
            while not waits.asked:
                await anyio.sleep(0)
            for _ in range(20):
                await session.send_ping()
            waits.go.set()
        assert heard == []


@pytest.mark.parametrize(
    ("error", "said"),
    [(Malformed("tool", "there is none of that name"), "none of that name"), (NotReachable("away", sent=True), "away")],
)
async def test_a_failure_keeps_its_words(waits: Waits, error: Exception, said: str) -> None:
    waits.fails = error

    async def progress(*words: Any) -> None:
        waits.go.set()

    async with client([]) as session:
        result = await session.call_tool("s__echo", {}, progress_callback=progress)
        assert isinstance(result, CallToolResult)
        assert result.is_error
        assert said in text_of(result)
