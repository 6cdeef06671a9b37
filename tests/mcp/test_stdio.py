"""`lever agent mcp`, started and spoken to by the official client, as a harness would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.mcp.conftest import Beside, text_of
from tests.rig import ACTIONS, WRITE_FILE, Rig

MODES = ["legacy", "auto"]


@asynccontextmanager
async def connected(beside: Beside, mode: str = "auto") -> AsyncIterator[Client]:
    """The official client with the server as its child. mode: legacy for 2025-11-25, auto for the current revision."""
    program, *args = beside.argv
    async with Client(StdioServerParameters(command=program, args=args), mode=mode) as client:
        yield client


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_of_either_revision_consumes_a_directive_of_each_kind(beside: Beside, mode: str) -> None:
    async with connected(beside, mode) as client:
        for action in ACTIONS:
            id = beside.rig.send(beside.cn, action=action)
            inbox = await client.call_tool("directive_inbox", {})
            assert [p["id"] for p in inbox.structured_content["pointers"]] == [id]
            result = await client.call_tool("directive_consume", {"id": id})
            assert not result.is_error
            assert result.structured_content["id"] == id
            assert result.structured_content["kind"] == action.kind
            assert json.loads(text_of(result)) == result.structured_content
            again = await client.call_tool("directive_consume", {"id": id})
            assert (again.is_error, text_of(again)) == (True, "not found")
            state = await client.call_tool("directive_check", {"id": id})
            assert state.structured_content == {"id": id, "state": "consumed"}
            report = await client.call_tool("directive_report", {"id": id, "outcome": "done", "note": "as asked"})
            assert report.structured_content == {"id": id, "reported": "done"}
            assert beside.rig.row(id)["report"]["note"] == "as asked"


@pytest.mark.parametrize("mode", MODES)
async def test_the_tools_are_flat_and_told_with_their_answers(beside: Beside, mode: str) -> None:
    async with connected(beside, mode) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [
            "directive_consume", "directive_check", "directive_inbox", "directive_report",
        ]  # fmt: skip
        for tool in tools:
            assert tool.input_schema["type"] == "object"
            assert not {"anyOf", "oneOf", "allOf", "not", "if"} & tool.input_schema.keys()
            assert tool.output_schema
            assert tool.output_schema["type"] == "object"
        assert "that you emitted yourself" in (client.instructions or "")


BAD = [
    ("directive_consume", {}, "id: missing"),
    ("directive_consume", {"id": "a", "directive_id": "b"}, "id and directive_id are given and differ"),
    ("directive_consume", {"id": 7}, "expected text"),
    ("directive_consume", {"id": "a", "reason": "x"}, "not an argument"),
    ("directive_inbox", {"wait_s": 31}, "from 0 to 30"),
    ("directive_inbox", {"wait_s": True}, "from 0 to 30"),
    ("directive_report", {"id": "a", "outcome": "great"}, "done, failed, declined"),
    ("directive_report", {"id": "a", "outcome": "done", "note": "x" * 1025}, "at most 1024 bytes"),
    ("directive_destroy", {}, "there is none of that name"),
]


@pytest.mark.parametrize(("tool", "arguments", "said"), BAD)
async def test_a_call_of_the_wrong_shape_is_told_what_was_expected(
    beside: Beside, tool: str, arguments: dict[str, Any], said: str
) -> None:
    async with connected(beside) as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert said in text_of(result)


async def test_the_alias_that_models_use_works(beside: Beside) -> None:
    async with connected(beside) as client:
        one, two = beside.rig.send(beside.cn), beside.rig.send(beside.cn)
        assert not (await client.call_tool("directive_consume", {"directive_id": one})).is_error
        assert not (await client.call_tool("directive_consume", {"id": two, "directive_id": two})).is_error


async def test_a_miss_is_two_words_whatever_its_cause(beside: Beside) -> None:
    other = beside.rig.enrol("somebody-else")
    theirs = beside.rig.send("somebody-else")
    async with connected(beside) as client:
        for id in ("unknown", "no id!", theirs):
            for tool, more in (
                ("directive_consume", {}),
                ("directive_check", {}),
                ("directive_report", {"outcome": "done"}),
            ):
                result = await client.call_tool(tool, {"id": id, **more})
                assert (result.is_error, text_of(result)) == (True, "not found")
    assert other.consume(theirs).status_code == 200


async def test_a_new_identity_in_the_folder_is_taken_up_without_a_restart(beside: Beside) -> None:
    async with connected(beside) as client:
        beside.enrol()
        id = beside.rig.send(beside.cn, 2)
        assert not (await client.call_tool("directive_consume", {"id": id})).is_error


async def test_it_goes_on_over_a_restart_of_the_broker_and_answers_at_once_while_it_is_away(
    own: tuple[Rig, Beside],
) -> None:
    rig, beside = own
    async with connected(beside) as client:
        id = rig.send(beside.cn)
        rig.kill()
        away = await client.call_tool("directive_consume", {"id": id})
        assert away.is_error
        assert "can't be reached" in text_of(away)
        rig.start()
        assert not (await client.call_tool("directive_consume", {"id": id})).is_error


async def test_without_an_identity_each_call_says_how_to_get_one(beside: Beside) -> None:
    (beside.identity / "identity.pem").unlink()
    async with connected(beside) as client:
        result = await client.call_tool("directive_inbox", {})
        assert result.is_error
        assert "lever agent enrol" in text_of(result)
        beside.enrol()
        assert not (await client.call_tool("directive_inbox", {})).is_error


HOSTILE_LINES = [
    b"",
    b"not json",
    b"\xff\xfe",
    b"[]",
    b"[1]",
    b"null",
    b"7",
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}',
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":{},"method":7}',
    b'{"jsonrpc":"2.0","id":9,"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":7}}',
    b'{"jsonrpc":"2.0","id":4,"method":"' + b"x" * 100 + b'"}',
    b"{" * 200,
    b'{"a":"' + b"x" * 1_500_000 + b'"}',
]


def test_no_line_ends_it(beside: Beside) -> None:
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": opening}).encode(),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode(),
        *HOSTILE_LINES,
        json.dumps({"jsonrpc": "2.0", "id": "last", "method": "tools/list"}).encode(),
    ]
    with subprocess.Popen(beside.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers = []
        while not answers or answers[-1].get("id") != "last":
            line = server.stdout.readline()
            assert line, server.stderr.read() if server.stderr else ""
            answers.append(json.loads(line))
        server.stdin.close()
        assert server.stdout.read() == b"", "nothing but the protocol is on standard output"
        assert server.wait(timeout=20) == 0, "and it ends with its input"
    assert len(answers[-1]["result"]["tools"]) == 4
    assert {answer.get("id") for answer in answers if "result" in answer} == {"hello", "last"}, "a key twice is no ping"
    assert {answer["error"]["code"] for answer in answers if answer.get("id") is None and "error" in answer} >= {-32700}


async def test_a_consume_whose_answer_was_lost_on_the_way_is_not_lost(beside: Beside) -> None:
    """The harness gave up waiting while the daemon stood still; the directive was consumed all the same."""
    rig = beside.rig
    assert rig.daemon
    async with connected(beside) as client:
        id = rig.send(beside.cn, action=WRITE_FILE)
        os.kill(rig.daemon.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Exception, match=r"[Tt]imed out|timeout"):
                await client.call_tool("directive_consume", {"id": id}, read_timeout_seconds=1)
        finally:
            os.kill(rig.daemon.pid, signal.SIGCONT)
        states = (rig.row(id)["state"] for _ in range(200))
        assert "consumed" in states, "by the call that nobody waits for any more"
        result = await client.call_tool("directive_consume", {"id": id})
        assert not result.is_error, text_of(result)
        assert result.structured_content["action"]["tool"] == "files"
