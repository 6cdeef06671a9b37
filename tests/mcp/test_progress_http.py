"""Progress at /mcp: for clients that asked for it and take a stream of events, while a call waits; else one JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from broker.doors.agent import AgentDoor, Rates
from broker.doors.http import App
from broker.doors.listen import Door
from broker.doors.mcp import McpRoute
from broker.doors.socket import bind_tcp
from broker.doors.tools import ToolRoutes
from broker.errors import Reason, Refused
from broker.rules.rates import TokenBucket
from broker.wire.tool_results import Result
from tests.authority.table import Table
from tests.doors.setting import LONG, PATIENT, PATIENT_S, SHORT, Client, Pki, dial, post
from tests.mcp.conftest import text_of
from tests.mcp.test_http import MODES
from tests.proof.cast import A, caller

SPLIT = "a\u2028\u2028data: {}\u2029\u0085\r\n\ndata: {}"
"""To some readers of a stream these are ends of lines."""
DONE: Result = {"content": [{"type": "text", "text": SPLIT}]}
PLENTY = TokenBucket(1000, 1000)
BOTH_KINDS = "application/json, text/event-stream"


@dataclass
class Waits:
    """In place of the gateway: what it was asked for comes once a test says so."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)
    fails: Exception | None = None
    cancelled: bool = False

    def tools(self, caller: object) -> list[Any]:
        return []

    def accepted(self, name: str) -> None:
        return None

    async def call(self, caller: object, name: str, arguments: object, *, call_id: str, wait_s: float) -> Result:
        self.asked.append(name)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.finished.set()
        if self.fails:
            raise self.fails
        return DONE


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@asynccontextmanager
async def opened(pki: Pki, gateway: Waits, every_s: float) -> AsyncIterator[Door]:
    """The agent door with /mcp alone; who has a certificate is worker-a."""
    table, none = Table(), cast(Any, None)
    who = caller(A, table.generation())
    turn, authority = SimpleNamespace(book=table.book), SimpleNamespace(caller_of=lambda der: who)
    rates = Rates(PLENTY, PLENTY, PLENTY, PLENTY, PLENTY)
    agent = AgentDoor(cast(Any, turn), lambda: table.at, lambda: table.at, cast(Any, authority), none, 60, none, rates)
    route = McpRoute(agent, ToolRoutes(agent, gateway), "1", every_s)
    app = App(route.routes(), ["localhost"])
    door = Door("agent", app, bind_tcp("127.0.0.1", 0), pki.server_context(), PATIENT)
    await door.start()
    try:
        yield door
    finally:
        await door.close(0.0)
        await route.close()


def url_of(door: Door) -> str:
    return f"https://localhost:{door.addresses[0][1]}/mcp"


def message(token: Any = "one", name: str = "s__list") -> bytes:
    params = {"name": name, "arguments": {}, "_meta": {} if token is None else {"progressToken": token}}
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()


def events(body: bytes) -> list[Any]:
    *found, rest = body.decode().split("\n\n")
    assert rest == ""
    assert all(one.startswith("event: message\ndata: ") for one in found)
    return [json.loads(one.removeprefix("event: message\ndata: ")) for one in found]


async def asked(pki: Pki, gateway: Waits, every_s: float, body: bytes, accept: str = BOTH_KINDS) -> httpx2.Response:
    """One call, which is answered once the gateway was asked."""
    async with (
        asyncio.timeout(PATIENT_S),
        opened(pki, gateway, every_s) as door,
        httpx2.AsyncClient(verify=pki.client_context(A), trust_env=False, timeout=PATIENT_S) as http,
    ):
        headers = {"content-type": "application/json", "accept": accept}
        answer = asyncio.create_task(http.post(url_of(door), content=body, headers=headers))
        while not gateway.asked:
            await asyncio.sleep(0)
        for _ in range(20):  # the loop's turns: a time of nought is over after the first
            await asyncio.sleep(0)
        gateway.go.set()
        return await answer


@pytest.mark.parametrize("mode", MODES)
async def test_who_asks_hears_how_long_it_takes_until_the_answer(pki: Pki, mode: str) -> None:
    told, gateway = list[tuple[Any, ...]](), Waits()

    async def hear(*words: Any) -> None:
        told.append(words)
        if len(told) == 3:
            gateway.go.set()

    async with (
        opened(pki, gateway, 0.001) as door,
        httpx2.AsyncClient(verify=pki.client_context(A), trust_env=False, timeout=PATIENT_S) as http,
        McpClient(streamable_http_client(url_of(door), http_client=http), mode=mode) as client,
    ):
        result = await client.call_tool("s__list", {}, progress_callback=hear)
    assert text_of(result) == SPLIT, "the answer is whole, whatever stands in it"
    assert gateway.asked == ["s__list"]
    seconds = [done for done, *_ in told]
    assert seconds == sorted(set(seconds)), "it only grows"
    assert {words[1:] for words in told} == {(None, "the call is under way, or waits for the operator")}


async def test_the_stream_has_progress_and_at_its_end_the_answer_in_lines_that_all_readers_see_alike(pki: Pki) -> None:
    answer = await asked(pki, Waits(), 0.0, message("mine"))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.content.isascii()
    *before, last = events(answer.content)
    assert {one["params"]["progressToken"] for one in before} == {"mine"}
    assert {one["method"] for one in before} == {"notifications/progress"}
    assert (last["id"], last["result"]["content"]) == (7, DONE["content"])


@pytest.mark.parametrize(
    ("body", "accept", "every_s"),
    [
        (message(None), BOTH_KINDS, 0.0),
        (message(True), BOTH_KINDS, 0.0),
        (message(), "application/json", 0.0),
        (message(), "application/json, text/event-stream;q=0", 0.0),
        (message(), "application/json, text/event-stream;q=0.000", 0.0),
        (message(), BOTH_KINDS, LONG),
    ],
    ids=["asks for none", "has no token", "takes none", "refuses a stream", "refuses it at length", "is answered soon"],
)
async def test_any_other_call_is_one_piece_of_json(pki: Pki, body: bytes, accept: str, every_s: float) -> None:
    answer = await asked(pki, Waits(), every_s, body, accept)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["result"]["content"] == DONE["content"]


async def test_a_directive_tool_is_answered_as_ever(pki: Pki) -> None:
    answer = await asked(pki, Waits(asked=["nobody"]), 0.0, message(name="directive_report"))
    assert answer.headers["content-type"] == "application/json"


async def test_a_failure_after_the_beginning_is_told_in_the_stream(pki: Pki) -> None:
    fault = events((await asked(pki, Waits(fails=RuntimeError("a secret cause")), 0.0, message())).content)[-1]
    assert fault == {"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "unavailable"}}
    barred = events((await asked(pki, Waits(fails=Refused(Reason.AGENT_FROZEN)), 0.0, message())).content)[-1]
    assert barred["result"] == {"content": [{"type": "text", "text": "not found"}], "isError": True}


@asynccontextmanager
async def streaming(pki: Pki, gateway: Waits) -> AsyncIterator[tuple[Door, Client]]:
    """A call whose stream has begun."""
    async with opened(pki, gateway, 0.001) as door, dial(door, pki.client_context(A)) as client:
        answer = await client.ask(post("/mcp", message(), f"Accept: {BOTH_KINDS}"))
        assert answer.headers["content-type"] == "text/event-stream"
        assert b'"notifications/progress"' in await client.chunk()
        yield door, client


async def test_who_leaves_the_stream_stops_no_call(pki: Pki) -> None:
    gateway = Waits()
    async with streaming(pki, gateway) as (door, client):
        client.leave()
        async with asyncio.timeout(PATIENT_S):
            while door.connections:
                await asyncio.sleep(0)
            gateway.go.set()
            await gateway.finished.wait()
        assert not gateway.cancelled


async def test_a_closing_door_lets_the_call_be_answered_within_its_grace(pki: Pki) -> None:
    gateway = Waits()
    async with streaming(pki, gateway) as (door, client):
        closing = asyncio.create_task(door.close(LONG))
        await asyncio.sleep(0)
        gateway.go.set()
        await asyncio.wait_for(closing, PATIENT_S)
        assert b'"result"' in await client.end()
        assert not gateway.cancelled


async def test_after_its_grace_the_door_says_that_the_broker_stops(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    gateway = Waits()
    async with streaming(pki, gateway) as (door, client):
        await asyncio.wait_for(door.close(SHORT), PATIENT_S)
        assert b'"message": "the broker is stopping"' in await client.end()
        assert gateway.cancelled
    assert caplog.text == ""
