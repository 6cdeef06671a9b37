"""/mcp on the agent door: the official client over mutual TLS, in both revisions, and what the door refuses before."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.conftest import text_of
from tests.rig import ACTIONS, Agent, Rig

MODES = ["legacy", "auto"]


@pytest.fixture
def agent(rig: Rig) -> Agent:
    """An agent of this test's own."""
    return rig.enrol(f"h-{uuid.uuid4().hex[:8]}")


@asynccontextmanager
async def connected(agent: Agent, mode: str = "auto") -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(verify=agent.context(), trust_env=False, timeout=30) as http:
        transport = streamable_http_client(f"https://127.0.0.1:{agent.rig.port}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_of_either_revision_consumes_a_directive_of_each_kind(agent: Agent, mode: str) -> None:
    async with connected(agent, mode) as client:
        assert len((await client.list_tools()).tools) == 4
        for action in ACTIONS:
            id = agent.rig.send(agent.cn, action=action)
            inbox = await client.call_tool("directive_inbox", {})
            assert [p["id"] for p in inbox.structured_content["pointers"]] == [id]
            result = await client.call_tool("directive_consume", {"id": id})
            assert result.structured_content["kind"] == action.kind
            assert json.loads(text_of(result)) == result.structured_content
            again = await client.call_tool("directive_consume", {"id": id})
            assert (again.is_error, text_of(again)) == (True, "not found")
            report = await client.call_tool("directive_report", {"id": id, "outcome": "done"})
            assert report.structured_content == {"id": id, "reported": "done"}


async def test_tools_belong_to_the_certificate_that_calls(agent: Agent, rig: Rig) -> None:
    other = rig.enrol(f"h-{uuid.uuid4().hex[:8]}")
    theirs = rig.send(other.cn)
    async with connected(agent) as client:
        for tool, more in (
            ("directive_consume", {}),
            ("directive_check", {}),
            ("directive_report", {"outcome": "done"}),
        ):
            result = await client.call_tool(tool, {"id": theirs, **more})
            assert (result.is_error, text_of(result)) == (True, "not found")
    assert other.consume(theirs).status_code == 200


@pytest.mark.promise("P14")
async def test_the_same_attempt_in_meta_gets_the_lost_answer_again(agent: Agent) -> None:
    id = agent.rig.send(agent.cn)
    async with connected(agent) as client:
        first, again = [
            await client.call_tool("directive_consume", {"id": id}, meta={"lever.dev/attempt": "one"}) for _ in range(2)
        ]
        assert first.structured_content == again.structured_content
        assert (await client.call_tool("directive_consume", {"id": id}, meta={"lever.dev/attempt": "two"})).is_error


def posted(agent: Agent, body: bytes, **headers: str) -> httpx2.Response:
    usual = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with agent.client() as client:
        return client.post("/mcp", content=body, headers=usual | headers)


NEWER = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def newer(method: str, **params: Any) -> bytes:
    """A message of the newer revision, which names itself in each."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": NEWER}}
    return json.dumps(message).encode()


@pytest.mark.parametrize("method", ["subscriptions/listen", "nonsense"])
@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json"])
def test_what_is_not_served_is_no_method_whatever_the_client_takes(agent: Agent, method: str, accept: str) -> None:
    told = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "accept": accept}
    answer = posted(agent, newer(method, notifications={}), **told)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)


def test_blanks_around_a_header_are_not_part_of_it(agent: Agent) -> None:
    """By hand: the usual clients send none."""
    body = newer("tools/call", name="directive_inbox", arguments={})
    head = (
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
        "mcp-protocol-version: 2026-07-28\t\r\nmcp-method:tools/call \r\nmcp-name:  directive_inbox \t \r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with (
        socket.create_connection(("127.0.0.1", agent.rig.port), timeout=30) as plain,
        agent.context().wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        line.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"pointers":[]' in answer


CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"directive_consume","arguments":{"id":"%b"}}}'
SPOILT = {
    "a key twice": CALL.replace(b'"id":1', b'"id":1,"id":1'),
    "a key twice, spelled": CALL.replace(b'"id":1', b'"id":1,"\\u0069d":1'),
    "NaN": CALL.replace(b'"id":1', b'"id":1,"x":NaN'),
    "1e400": CALL.replace(b'"id":1', b'"id":1,"x":1e400'),
    "two values": CALL + b"{}",
    "not UTF-8": CALL + b"\xff",
}


@pytest.mark.promise("P31")
@pytest.mark.parametrize("how", SPOILT)
def test_a_body_that_two_readers_read_differently_reaches_no_tool(agent: Agent, how: str) -> None:
    id = agent.rig.send(agent.cn)
    assert posted(agent, SPOILT[how].replace(b"%b", id.encode())).status_code == 400
    assert agent.consume(id).status_code == 200, "it was not consumed"


@pytest.mark.promise("P31", "P33")
def test_the_door_judges_before_the_sdk_does(agent: Agent) -> None:
    with agent.client() as client:
        for method in ("GET", "DELETE"):
            assert client.request(method, "/mcp").status_code == 405
    assert posted(agent, CALL, **{"content-type": "text/plain"}).status_code == 415
    assert posted(agent, CALL, origin="https://evil.example").status_code == 403
    assert posted(agent, CALL, host="evil.example").status_code == 421
    assert posted(agent, b" " * 140_000).status_code == 413


@pytest.mark.promise("P16", "P2")
async def test_a_replaced_or_revoked_identity_gets_nothing_on_its_open_connection(agent: Agent, rig: Rig) -> None:
    new = rig.enrol(agent.cn)
    assert posted(agent, CALL).status_code == 403
    assert posted(new, CALL).status_code == 200
    rig.admin("/admin/agent_revoke", "agent_revoke", cn=agent.cn)
    assert posted(new, CALL).status_code == 403
    stranger: Any = Agent(rig, "nobody")
    assert posted(stranger, CALL).status_code == 403


@pytest.mark.promise("P11")
def test_messages_have_a_rate_of_their_own(agent: Agent) -> None:
    """Listing tools decides nothing and still costs the broker a millisecond."""
    listing = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    usual = {"content-type": "application/json", "accept": "application/json"}
    with agent.client() as client:
        seen = [client.post("/mcp", content=listing, headers=usual).status_code for _ in range(200)]
    assert set(seen) == {200, 429}
    assert agent.consume(agent.rig.send(agent.cn)).status_code == 200, "its consumes have another"
