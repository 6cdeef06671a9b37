"""Brokered tools through /mcp: the official client over mutual TLS, in both revisions."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from broker.wire import directive_tools
from broker.wire.progress import EVERY_S
from tests.authority.desk import Desk
from tests.mcp.conftest import BROKERED, text_of
from tests.mcp.test_brokered import BAD, ECHO, GOOD, refused, typed
from tests.mcp.test_http import MODES, NEWER, connected, posted
from tests.rig import Agent

ARGUMENTS = {"to": "mara@example.org", "copies": 2}
UNREADABLE = [value for value in BAD if not value.removeprefix(b"-").isdigit()]
"""An integer that is too large is read, and refused with its place: test_failing_calls.py."""


@pytest.fixture
def agent(office: Desk) -> Agent:
    """An agent of this test's own, which shows its certificate itself."""
    return office.rig.enrol(f"b-{uuid.uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def caller(office: Desk) -> Agent:
    """One agent for what leaves nothing behind."""
    return office.rig.enrol(f"b-{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_waits_for_the_operator_and_is_carried_out_once(agent: Agent, office: Desk, mode: str) -> None:
    async with connected(agent, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == {*directive_tools.NAMES, *BROKERED}
        assert tools["s__echo"].description == "Does echo."
        asked = refused(await client.call_tool("s__echo", ARGUMENTS), "consent_required")
        again = refused(await client.call_tool("s__echo", ARGUMENTS), "consent_required")
        assert again["request_id"] == asked["request_id"]
        assert office.approve(asked["request_id"]).status_code == 200
        done = await client.call_tool("s__echo", ARGUMENTS, meta={"lever.dev/wait_s": 1})
        assert not done.is_error
        assert json.loads(text_of(done))["params"]["arguments"] == ARGUMENTS
        status = await client.call_tool("request_status", {"request_id": asked["request_id"]})
        assert status.content == done.content
        refused(await client.call_tool("s__echo", ARGUMENTS), "consent_required")
        refused(await client.call_tool("s__dies", {}), "denied_by_rule")
        refused(await client.call_tool("lease_request", {"account": 7}), "invalid_arguments")
        failed = await client.call_tool("r__fails", {})
        assert (failed.is_error, text_of(failed)) == (True, "no such branch")


async def test_who_waits_for_the_operator_hears_of_it(agent: Agent, office: Desk) -> None:
    """The first sign of life, and only then does the operator answer. In small: test_progress_http.py."""
    told = list[float]()
    async with connected(agent) as client:
        asked = refused(await client.call_tool("s__echo", ARGUMENTS), "consent_required")

        async def hear(seconds: float, *words: Any) -> None:
            told.append(seconds)
            assert (await asyncio.to_thread(office.approve, asked["request_id"])).status_code == 200

        meta: Any = {"lever.dev/wait_s": 30}
        done = await client.call_tool("s__echo", ARGUMENTS, progress_callback=hear, meta=meta)
    assert json.loads(text_of(done))["params"]["arguments"] == ARGUMENTS
    assert told[0] == EVERY_S


@pytest.mark.parametrize("mode", MODES)
async def test_the_same_call_id_is_one_execution(agent: Agent, mode: str) -> None:
    async with connected(agent, mode) as client:
        first, again, other = [
            text_of(await client.call_tool("r__echo", {"n": 1}, meta={"lever.dev/call_id": id}))
            for id in ("one", "one", "two")
        ]
        assert first == again != other
        for meta in ({"lever.dev/call_id": "no id!"}, {"lever.dev/wait_s": 31}):
            assert (await client.call_tool("r__echo", {"n": 1}, meta=meta)).is_error


async def test_a_request_is_its_own_agents(agent: Agent, office: Desk) -> None:
    other = office.rig.enrol(f"b-{uuid.uuid4().hex[:8]}")
    async with connected(agent) as client, connected(other) as others:
        asked = refused(await client.call_tool("s__echo", ARGUMENTS), "consent_required")
        refused(await others.call_tool("request_status", {"request_id": asked["request_id"]}), "not_found")
        assert office.approve(asked["request_id"]).status_code == 200
        refused(await others.call_tool("s__echo", ARGUMENTS), "consent_required")
        assert not (await client.call_tool("s__echo", ARGUMENTS)).is_error


async def test_a_large_answer_comes_whole(agent: Agent) -> None:
    async with connected(agent) as client:
        assert text_of(await client.call_tool("r__large", {"bytes": 900_000})) == "y" * 900_000


def said(agent: Agent, value: bytes) -> Any:
    return posted(agent, ECHO.replace(b"%d", b"1").replace(b"?", value))


@pytest.mark.promise("P36")
def test_no_number_no_text_and_no_order_changes_between_the_message_and_the_server(agent: Agent) -> None:
    for value in GOOD:
        answer = said(agent, value)
        got = json.loads(answer.json()["result"]["content"][0]["text"])["params"]["arguments"]["v"]
        expected = json.loads(value)
        if isinstance(expected, float) and expected.is_integer() and abs(expected) < 2**53:
            expected = int(expected)  # RFC 8785 writes 1.0 as 1: that is what the operator signs
        assert typed(sorted_keys(expected)) == typed(got), value


def sorted_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: sorted_keys(value[name]) for name in sorted(value)}
    return [sorted_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.promise("P31", "P36")
@pytest.mark.parametrize("value", UNREADABLE, ids=lambda value: value[:16].decode())
def test_a_value_that_readers_read_differently_is_a_bad_message(agent: Agent, value: bytes) -> None:
    assert said(agent, value).status_code == 400


def test_no_arguments_are_none(agent: Agent) -> None:
    for spelled in (b'"arguments":null', b'"arguments":{}', b'"_meta":{}'):
        answer = posted(agent, ECHO.replace(b"%d", b"1").replace(b'"arguments":{"v":?}', spelled))
        assert json.loads(answer.json()["result"]["content"][0]["text"])["params"]["arguments"] == {}


PLAIN = [
    ("r__fails", {}, {}),
    ("s__dies", {}, {}),
    ("nonsense", {}, {}),
    ("r__nonsense", {}, {}),
    ("lease_request", {"account": 7}, {}),
    ("request_status", {"request_id": "0" * 32}, {}),
    ("r__echo", {}, {"lever.dev/wait_s": 31}),
    ("r__echo", {}, {"lever.dev/call_id": "no id!"}),
    ("r__fails", {}, {"progressToken": None}),
]


@pytest.mark.parametrize("revision", ["", "2025-06-18", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(("name", "arguments", "meta"), PLAIN, ids=lambda value: str(value)[:24])
def test_a_call_is_answered_as_the_sdk_would(
    caller: Agent, name: str, arguments: Any, meta: Any, revision: str
) -> None:
    """The plain call passes by the SDK's transport; a member that means nothing sends the same call through it."""
    headers = {"mcp-protocol-version": revision} if revision else {}
    if revision == "2026-07-28":
        meta, headers = meta | NEWER, {**headers, "mcp-method": "tools/call", "mcp-name": name}
    message = {"jsonrpc": "2.0", "id": "a", "method": "tools/call"}
    message |= {"params": {"name": name, "arguments": arguments, "_meta": meta}}
    plain, other = [posted(caller, json.dumps(one).encode(), **headers) for one in (message, message | {"x": 1})]
    assert (plain.status_code, plain.headers["content-type"]) == (other.status_code, other.headers["content-type"])
    assert plain.json() == other.json()
    assert plain.json()["id"] == "a"


@pytest.mark.parametrize(
    "headers", [{}, {"mcp-method": "tools/list"}, {"mcp-name": "r__fails"}, {"mcp-protocol-version": "2030-01-01"}]
)
def test_a_call_whose_headers_say_another_thing_is_no_call(caller: Agent, headers: dict[str, str]) -> None:
    told = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "r__echo"}
    told = {name: value for name, value in told.items() if headers or name != "mcp-name"} | headers
    params = {"name": "r__echo", "arguments": {}, "_meta": NEWER}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    refused = posted(caller, body, **told)
    assert refused.status_code == 400
    assert "error" in refused.json()
