"""What /mcp tells where the broker can't go on, and of arguments out of range: what the other routes tell."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.doors.agent import AgentDoor, Rates
from broker.doors.http import Handler, Request
from broker.doors.mcp import McpRoute
from broker.doors.peer import Peer
from broker.doors.tools import ToolRoutes
from broker.errors import Fatal, Malformed
from broker.rules.rates import TokenBucket
from broker.wire import bodies
from broker.wire.caller import Caller
from broker.wire.names import Instant
from tests.authority.table import Table
from tests.authority.test_gateway import Room
from tests.proof.cast import A, caller

PLENTY, NONE = TokenBucket(1000, 1000), TokenBucket(0, 1)
AWAY = "unavailable: the broker can't answer for now"


@dataclass
class Doors:
    """The agent door's handlers by route, for one agent; its journal fails where the rates leave nothing to do."""

    handlers: dict[str, Handler]
    table: Table

    async def ask(self, path: str, value: Any, who: Caller | None = None) -> tuple[int, Any]:
        """who: another than the agent as it is enrolled now."""
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        headers = {b"content-type": b"application/json", b"host": b"localhost"}
        peer = Peer(connection={"caller": who or caller(A, self.table.generation())})
        response = await self.handlers[path](Request("POST", path, {}, headers, raw, peer))
        return response.status, json.loads(response.body)

    async def called(self, name: str, arguments: Any, *, plain: bool = True) -> Any:
        """A tool's result at /mcp. plain: False for the way through the SDK's transport."""
        params = {"name": name, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        status, answer = await self.ask("/mcp", message if plain else message | {"x": 1})
        assert status == 200
        return answer["result"]


@pytest.fixture
async def doors(request: pytest.FixtureRequest) -> AsyncIterator[Doors]:
    """request.param: the rate of calls and consumes; what is refused for it can't be written."""

    async def take(*args: Any) -> Any:
        raise Fatal("the disk")

    async def standing() -> Any:
        return table.standing

    table, none = Table(), cast(Any, None)

    def at() -> Instant:
        return table.at

    turn = cast(Any, SimpleNamespace(book=table.book, take=take))
    rates = Rates(request.param, request.param, PLENTY, PLENTY, PLENTY)
    inbox = cast(Any, SimpleNamespace(mark=lambda cn: 0))
    agent = AgentDoor(turn, at, at, none, standing, 60, inbox, rates)
    room = Room(table)
    await room.gateway.settle()
    tools = ToolRoutes(agent, room.gateway)
    mcp = McpRoute(agent, tools, "1")
    routes = (*agent.routes(), *tools.routes(), *mcp.routes())
    yield Doors({route.path: route.handler for route in routes}, table)
    await mcp.close()


@pytest.mark.parametrize("doors", [NONE], indirect=True)
async def test_a_broker_that_is_stopping_tells_at_mcp_what_it_tells_elsewhere(doors: Doors) -> None:
    id = {"id": "d-1"}
    for name, arguments, path, body in (
        ("s__list", {}, "/tools/call", {"name": "s__list", "arguments": {}}),
        ("directive_consume", id, "/directive/consume", id),
        ("directive_check", id, "/directive/check", id),
        ("directive_report", id | {"outcome": "done"}, "/directive/report", id | {"outcome": "done"}),
        ("directive_inbox", {}, "/inbox", b""),
    ):
        status, answer = await doors.ask(path, body)
        assert (status, answer) in [(503, {"error": "unavailable"}), (404, {"error": "not found"})]
        for plain in (True, False):
            result = await doors.called(name, arguments, plain=plain)
            assert result["isError"]
            assert [part["text"] for part in result["content"]] == ["not found" if status == 404 else AWAY], name
            assert "disk" not in json.dumps(result)


@pytest.mark.promise("P2", "P26")
@pytest.mark.parametrize("doors", [PLENTY], indirect=True)
async def test_who_was_enrolled_anew_since_sees_no_tool_and_calls_none(doors: Doors) -> None:
    """Whoever holds the certificate of an earlier enrolment, which TLS lets in for the rest of its day."""
    former = caller(A, doors.table.generation())
    doors.table.enrol(A)
    look: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    call = {"name": "s__list", "arguments": {}}
    for path, value in (
        ("/tools", b""),
        ("/tools/call", call),
        ("/mcp", look),
        ("/mcp", look | {"method": "tools/call", "params": call}),
    ):
        assert await doors.ask(path, value, former) == (403, {"error": "forbidden"}), path
    status, told = await doors.ask("/tools", b"")
    assert (status, "s__list" in [one["name"] for one in told["tools"]]) == (200, True), "its successor does"


@pytest.mark.parametrize("doors", [PLENTY], indirect=True)
@pytest.mark.parametrize("number", ["9007199254740992", "-9007199254740992", "1" + "0" * 4000])
async def test_an_integer_beyond_is_the_same_refusal_as_at_the_other_route(doors: Doors, number: str) -> None:
    def raw(value: Any) -> bytes:
        return json.dumps(value).replace('"?"', number).encode()

    params = {"name": "s__list", "arguments": {"a": [{"n": "?"}]}}
    status, told = await doors.ask("/tools/call", raw(params))
    assert (status, told["structuredContent"]["code"]) == (200, "invalid_arguments")
    assert told["structuredContent"]["message"].startswith("/a/0/n an integer beyond")
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    for said in (message, message | {"x": 1}):
        status, answer = await doors.ask("/mcp", raw(said))
        assert (status, answer["result"]["structuredContent"]) == (200, told["structuredContent"])


MESSAGE: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"n": "?"}}}


@pytest.mark.parametrize(
    "change",
    [
        {"id": "?"}, {"method": "tools/list"}, {"params": {"arguments": {}, "_meta": {"progressToken": "?"}}},
        {"params": ["?"]}, {"params": "?"}, {"x": {"arguments": "?"}}, {"method": ["tools/call"]},
    ],
    ids=str,
)  # fmt: skip
def test_beside_a_calls_arguments_such_an_integer_is_a_bad_message(change: dict[str, Any]) -> None:
    def read(value: Any) -> Any:
        return bodies.mcp_body(json.dumps(value).replace('"?"', str(2**53)).encode())

    assert read(MESSAGE)["params"]["arguments"] == {"n": 2**53}
    for value in (MESSAGE | change, [MESSAGE]):
        with pytest.raises(Malformed, match="an integer beyond"):
            read(value)
