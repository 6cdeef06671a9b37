"""Brokered tools through `lever agent mcp`, as a harness calls them: the official client, and lines by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from mcp import Client

from broker.errors import Malformed
from broker.wire import directive_tools, strict_json
from tests.authority.desk import Desk
from tests.mcp.conftest import BROKERED, Beside, opened, text_of
from tests.mcp.test_stdio import MODES, connected

DIRECTIVE = set(directive_tools.NAMES)
ARGUMENTS = {"to": "mara@example.org", "copies": 2}


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


def refused(result: Any, code: str) -> dict[str, Any]:
    """What is said of a call that was not carried out: the same to a model and to a program."""
    assert result.is_error, result
    said: dict[str, Any] = result.structured_content
    assert (said["code"], json.loads(text_of(result))) == (code, said)
    return said


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_of_either_revision_lists_what_it_may_call_or_ask_for(worker: Beside, mode: str) -> None:
    async with connected(worker, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == DIRECTIVE | BROKERED
        assert tools["r__echo"].description == "Does echo."
        assert tools["r__echo"].input_schema == {"type": "object"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_waits_for_the_operator_and_is_carried_out_once(worker: Beside, office: Desk, mode: str) -> None:
    async with connected(worker, mode) as client:
        asked = refused(await client.call_tool("s__echo", ARGUMENTS), "consent_required")
        assert "Do not repeat it in a loop" in asked["retry"]
        status = await client.call_tool("request_status", {"request_id": asked["request_id"]})
        assert (status.is_error, status.structured_content["state"]) == (False, "pending")
        assert office.approve(asked["request_id"]).status_code == 200
        other = refused(await client.call_tool("s__echo", ARGUMENTS | {"copies": 3}), "consent_required")
        assert "for different arguments" in other["message"]
        done = await client.call_tool("s__echo", ARGUMENTS)
        assert not done.is_error
        assert json.loads(text_of(done))["params"]["arguments"] == ARGUMENTS
        later = await client.call_tool("request_status", {"request_id": asked["request_id"]})
        assert later.content == done.content, "a lost answer needs no second execution"
        refused(await client.call_tool("s__echo", ARGUMENTS), "consent_required")


async def test_a_client_may_wait_for_the_operator(worker: Beside, office: Desk) -> None:
    async with connected(worker) as client:
        request = refused(await client.call_tool("s__echo", ARGUMENTS), "consent_required")["request_id"]
        done: list[Any] = []

        async def wait() -> None:
            done.append(await client.call_tool("s__echo", ARGUMENTS, meta={"lever.dev/wait_s": 30}))

        async with anyio.create_task_group() as both:
            both.start_soon(wait)
            assert (await anyio.to_thread.run_sync(office.approve, request)).status_code == 200
        assert not done[0].is_error, "without asking again"


async def test_the_same_call_id_is_one_execution_and_none_is_another_each_time(worker: Beside) -> None:
    async with connected(worker) as client:
        first, again, other = [
            text_of(await client.call_tool("r__echo", {"n": 1}, meta={"lever.dev/call_id": id}))
            for id in ("one", "one", "two")
        ]
        assert first == again != other, "the server numbers what it is asked"
        free = [text_of(await client.call_tool("r__echo", {"n": 1})) for _ in range(2)]
        assert len({first, other, *free}) == 4
        changed = await client.call_tool("r__echo", {"n": 2}, meta={"lever.dev/call_id": "one"})
        refused(changed, "call_id_conflict")


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"lever.dev/wait_s": 31}, "from 0 to 30"),
        ({"lever.dev/wait_s": True}, "from 0 to 30"),
        ({"lever.dev/wait_s": "5"}, "from 0 to 30"),
        ({"lever.dev/call_id": "no id!"}, "expected 1 to 64"),
        ({"lever.dev/call_id": ""}, "expected 1 to 64"),
        ({"lever.dev/call_id": 7}, "expected 1 to 64"),
    ],
)
async def test_what_is_said_of_a_call_is_understood_or_the_call_is_not_made(
    worker: Beside, meta: dict[str, Any], said: str
) -> None:
    async with connected(worker) as client:
        result = await client.call_tool("r__echo", {}, meta=meta)
        assert result.is_error
        assert said in text_of(result)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("s__dies", "denied_by_rule"),
        ("s__child", "denied_by_default"),
        ("s__none", "unknown_tool"),
        ("nobody__echo", "unknown_tool"),
        ("echo", "unknown_tool"),
        ("lease_request", "invalid_arguments"),
    ],
)
async def test_what_is_refused_says_why(worker: Beside, name: str, code: str) -> None:
    async with connected(worker) as client:
        refused(await client.call_tool(name, {"account": 7} if name == "lease_request" else {}), code)


async def test_a_tools_own_failure_and_a_large_answer_come_as_they_are(worker: Beside) -> None:
    async with connected(worker) as client:
        failed = await client.call_tool("r__fails", {})
        assert (failed.is_error, text_of(failed)) == (True, "no such branch")
        large = await client.call_tool("r__large", {"bytes": 900_000})
        assert (large.is_error, text_of(large)) == (False, "y" * 900_000)


async def test_arguments_that_are_too_large_are_told_so(worker: Beside) -> None:
    async with connected(worker) as client:
        result = await client.call_tool("r__echo", {"text": "x" * 140_000})
        assert result.is_error
        assert "more than 131072" in text_of(result)
        assert (await client.call_tool("x" * 300, {})).is_error
        assert not (await client.call_tool("r__echo", {"text": "x" * 60_000})).is_error


async def test_while_the_broker_is_away_or_stands_still_the_directive_tools_are_listed(tmp_path: Path) -> None:
    desk = opened(tmp_path / "instance")
    beside = Beside(desk.rig, "worker-a", tmp_path / "identity")
    beside.enrol()
    assert desk.rig.daemon
    async with connected(beside) as client:
        os.kill(desk.rig.daemon.pid, signal.SIGSTOP)
        assert await names(client) == DIRECTIVE
        os.kill(desk.rig.daemon.pid, signal.SIGCONT)
        assert await names(client) == DIRECTIVE | BROKERED
        desk.rig.kill()
        assert await names(client) == DIRECTIVE
        away = await client.call_tool("r__echo", {})
        assert away.is_error
        assert "can't be reached" in text_of(away)
        desk.rig.start()
        assert await names(client) == DIRECTIVE | BROKERED
        assert not (await client.call_tool("r__echo", {})).is_error
        assert desk.signed("agent_revoke", cn="worker-a").status_code == 200
        assert await names(client) == DIRECTIVE
    desk.rig.close()


def spoken(beside: Beside, *calls: bytes, unanswered: int = 0) -> list[dict[str, Any]]:
    """The answers to these lines, each with the id that its place gives it: `%d` in the line. The last may get none."""
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": opening}
    lines = [json.dumps(hello).encode(), b'{"jsonrpc":"2.0","method":"notifications/initialized"}']
    lines += [line.replace(b"%d", str(n).encode()) for n, line in enumerate(calls)]
    with subprocess.Popen(beside.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers: dict[Any, dict[str, Any]] = {}
        while len(answers) <= len(calls) - unanswered:
            answer = json.loads(server.stdout.readline())
            answers[answer["id"]] = answer
        server.stdin.close()
        assert {json.loads(line)["id"] for line in server.stdout} <= set(range(len(calls) - unanswered, len(calls)))
        assert server.wait(20) == 0, "it ends with its input"
    return [answers[n] for n in range(len(calls) - unanswered)]


ECHO = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"r__echo","arguments":{"v":?}}}'
GOOD = [
    b"1", b"1.0", b"10E-1", b"-0", b"-0.0", b"0.1", b"1e22", b"1E+22", b"5e-324", b"123456789.123456789",
    b"9007199254740991", b"-9007199254740991", b"true", b"null", b'"1"', b'"\\u00e9\\ud83d\\ude00\\u2028\\/"',
    '"\u202e\u00e9\U0001f600"'.encode(), b'{"z":1,"a":[3,1,2],"M":{"b":0,"a":0}}', b"[[],{},[{}]]",
    b'"' + b"x" * 60_000 + b'"', b"[" * 55 + b'"deep"' + b"]" * 55,
]  # fmt: skip
BAD = [
    b"1e20", b"9007199254740992", b"-9007199254740992", b"1e400", b"NaN", b'"\\ud800"', b'{"a":1,"a":1}',
    b'{"a":1,"A":1}', b"[" * 70 + b"]" * 70,
]  # fmt: skip


def typed(value: Any) -> Any:
    """With the kind of each number, and the order of every key."""
    if isinstance(value, dict):
        return [(name, typed(item)) for name, item in value.items()]
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), repr(value))


@pytest.mark.promise("P36")
def test_no_number_no_text_and_no_order_changes_between_the_clients_line_and_the_server(worker: Beside) -> None:
    answers = spoken(worker, *(ECHO.replace(b"?", value) for value in GOOD))
    for value, answer in zip(GOOD, answers, strict=True):
        got = json.loads(answer["result"]["content"][0]["text"])["params"]["arguments"]
        signed = strict_json.canonical(strict_json.parse(b'{"v":%b}' % value, "v"))
        assert typed(got) == typed(strict_json.parse(signed, "signed")), value


@pytest.mark.promise("P31", "P36")
def test_a_number_or_key_that_readers_read_differently_is_answered_with_an_error(worker: Beside) -> None:
    for value in BAD:
        with pytest.raises(Malformed):
            strict_json.parse(b'{"m":{"p":{"v":%b}}}' % value, "v")
    readable = [value for value in BAD if value not in (b'{"a":1,"a":1}', b'{"a":1,"A":1}')]
    answers = spoken(worker, *(ECHO.replace(b"?", value) for value in readable))
    assert {answer["error"]["code"] for answer in answers} == {-32600}, "each under its own id: nobody waits for it"


def test_it_ends_with_its_input_whatever_still_runs(worker: Beside) -> None:
    silent = ECHO.replace(b"r__echo", b"r__silent").replace(b"?", b"1")
    spoken(worker, ECHO.replace(b"?", b"1"), silent, unanswered=1)
