"""`lever agent tools` and `lever agent call`: brokered tools from a shell."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.authority.desk import Desk
from tests.mcp.conftest import BROKERED, Beside


def run(worker: Beside, *words: str, expect: int = 0, input: str | None = None) -> subprocess.CompletedProcess[str]:
    return worker.rig.cli("agent", *words, "--identity", str(worker.identity), expect=expect, input=input)


def sent(done: subprocess.CompletedProcess[str]) -> Any:
    """The arguments as the echoing server got them."""
    return json.loads(json.loads(done.stdout)["content"][0]["text"])["params"]["arguments"]


def test_the_tools_are_listed_with_what_they_do(worker: Beside) -> None:
    lines = run(worker, "tools").stdout.splitlines()
    assert {line.split()[0] for line in lines[1:]} == BROKERED
    assert [line for line in lines if line.startswith("r__echo ") and "Does echo." in line]
    told = json.loads(run(worker, "tools", "--json").stdout)["tools"]
    assert {tool["name"] for tool in told} == BROKERED


def test_a_call_is_asked_for_and_made_once_it_is_allowed(worker: Beside, office: Desk) -> None:
    given = '{"to": "mara@example.org", "n": 1.5}'
    refused = run(worker, "call", "s__echo", given, expect=3)
    assert "consent_required: the operator has to allow" in refused.stderr
    assert "lever agent call request_status" in refused.stderr
    request = json.loads(run(worker, "call", "s__echo", given, "--json", expect=3).stdout)
    id = request["structuredContent"]["request_id"]
    assert id in refused.stderr
    assert office.approve(id).status_code == 200
    assert sent(run(worker, "call", "s__echo", given, "--json", "--wait", "1")) == json.loads(given)


def test_a_result_is_shown_and_what_hides_in_it_is_spelled(worker: Beside) -> None:
    shown = run(worker, "call", "r__echo", '{"text": "\\u202e\\u001b[2J"}').stdout
    assert '"method"' in shown
    assert not set(shown) & {"\u202e", "\x1b"}


def test_the_same_key_is_the_same_call(worker: Beside) -> None:
    first, again, other = (run(worker, "call", "r__echo", "--call-id", key).stdout for key in ("one", "one", "two"))
    assert first == again != other


def test_arguments_may_come_from_stdin(worker: Beside) -> None:
    assert sent(run(worker, "call", "r__echo", "-", "--json", input='{"a": [1, "é"]}')) == {"a": [1, "é"]}


@pytest.mark.parametrize(
    ("words", "exit", "said"),
    [
        (("r__fails",), 3, "the tool failed: no such branch"),
        (("s__dies",), 3, "denied_by_rule: "),
        (("s__child",), 3, "denied_by_default: in no list"),
        (("s.child",), 3, "unknown_tool: there is none of that name; agents write s__child"),
        (("nothing",), 3, "unknown_tool: there is none of that name; agents write server__tool"),
        (("lease_request", '{"account": 7}'), 3, "invalid_arguments: "),
        (("r__echo", '{"n": 1e20}'), 2, "a number whose canonical form"),
        (("r__echo", '{"n": 1, "n": 2}'), 2, "duplicate key n"),
        (("r__echo", "[1]"), 2, "expected an object"),
        (("r__echo", "mara"), 2, "expected one JSON object"),
        (("r__echo", '{"text": "' + "x" * 70_000 + '"}'), 2, "more than 65536"),
        (("r__echo", "{}", "--wait", "31"), 2, "--wait"),
        (("r__echo", "{}", "--call-id", "no id!"), 2, "--call-id"),
    ],
)
def test_what_goes_wrong_is_told(worker: Beside, words: tuple[str, ...], exit: int, said: str) -> None:
    assert said in run(worker, "call", *words, expect=exit).stderr


def test_where_nothing_is_brokered_there_is_nothing_to_list(beside: Beside) -> None:
    done = run(beside, "tools")
    assert (done.stdout, done.stderr) == ("", "no tool is brokered for this agent\n")
    assert json.loads(run(beside, "tools", "--json").stdout) == {"tools": []}
