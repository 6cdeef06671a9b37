"""`lever policy apply` and `show`: what comes into force is what was read, and what it changes was told."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from broker.wire import envelope, policy
from broker.wire.names import NAMESPACE_ADMIN
from lever.exits import Exit
from tests.cli import said
from tests.cli.conftest import Cli, Done
from tests.cli.said import a_definition, a_policy, a_tool, in_force
from tests.cli.test_directive import body_for, signed_by
from tests.fakes.operator_socket import OperatorSocket, operator_socket

FILE = """
v: 1
name: wide
default_action: deny
tool_allowlist: {allowed: [files.read, files.write], approval_required: [], denied: []}
"""
APPLIED = (200, {"scope": "instance", "version": "wide@123"})


@pytest.fixture
def path() -> Iterator[Path]:
    with said.socket_folder() as path:
        yield path


def apply(
    cli: Cli, instance: Path, path: Path, *words: str, before: dict[str, policy.Policy] | None = None, file: str = FILE
) -> tuple[Done, OperatorSocket]:
    (cli.folder / "new.yaml").write_text(file)
    with operator_socket(path, admin_policy_show=in_force(**(before or {})), admin_policy_apply=APPLIED) as broker:
        done = cli("policy", "apply", "new.yaml", *words, "--config", instance, "--socket", path)
    return done, broker


def test_apply_signs_the_digest_of_the_canonical_bytes_that_go_along(cli: Cli, instance: Path, path: Path) -> None:
    done, broker = apply(cli, instance, path, "--scope", "agent/worker-a", before={"instance": a_policy()})
    assert done.status == 0, done.stderr
    body = body_for(broker, "/admin/policy_apply")
    raw = base64.b64decode(body["attachment"])
    assert policy.parse(raw).name == "wide"
    value = envelope.read(signed_by(instance, "envelope", body, NAMESPACE_ADMIN))
    assert (value.op, value.params["scope"]) == ("policy_apply", "agent/worker-a")
    assert value.params["digest"] == sha256(raw).hexdigest()
    assert value.params["digest"] in done.stderr


def test_apply_tells_what_becomes_wider_and_what_may_not_be_meant(cli: Cli, instance: Path, path: Path) -> None:
    done, _ = apply(cli, instance, path, before={"instance": a_policy()})
    assert done.status == 0, done.stderr
    assert "wider     files.write: approval_required -> allowed" in done.stderr.splitlines()
    assert "warning: tools for deletion are not denied by rule" in done.stderr
    assert f"For instance: {a_policy().version} -> wide@" in done.stderr
    assert done.stdout == "instance is under wide@123\n"
    first, _ = apply(cli, instance, path, "--json")
    assert "no policy -> wide@" in first.stderr
    assert json.loads(first.stdout) == APPLIED[1]


def test_apply_tells_which_entries_name_no_accepted_tool(cli: Cli, instance: Path, path: Path) -> None:
    (cli.folder / "new.yaml").write_text(
        FILE.replace("approval_required: []", 'approval_required: ["Git.*", "mail.*"]')
    )
    words = ("policy", "apply", "new.yaml", "--config", instance, "--socket", path)
    told = in_force(("files.read", "git.git_log"))
    with operator_socket(path, admin_policy_show=told, admin_policy_apply=APPLIED):
        done = cli(*words)
    assert done.status == 0, done.stderr
    warned = "warning: no accepted tool has these names: files.write, mail.*; see lever tools list"
    assert warned in done.stderr.splitlines()
    old = (200, {"policies": []})  # of a broker that tells no tools
    with operator_socket(path, admin_policy_show=old, admin_policy_apply=APPLIED):
        assert "no accepted tool" not in cli(*words).stderr


def test_a_file_that_is_no_policy_is_told_before_anything_is_asked(cli: Cli, instance: Path, path: Path) -> None:
    done, broker = apply(cli, instance, path, file=FILE.replace("deny", "allow"))
    assert done.status == Exit.USAGE
    assert "new.yaml:4:17" in done.stderr
    assert broker.asked == []


@pytest.mark.parametrize("scope", ["all", "tenant", "tenant/", "team/a", "agent/A", "instance/x"])
def test_what_is_no_scope_is_told(cli: Cli, instance: Path, path: Path, scope: str) -> None:
    done, broker = apply(cli, instance, path, "--scope", scope)
    assert (done.status, broker.asked) == (Exit.USAGE, [])


def test_a_no_applies_nothing(cli: Cli, instance: Path, path: Path) -> None:
    (cli.folder / "new.yaml").write_text(FILE)
    with operator_socket(path, admin_policy_show=in_force()) as broker:
        words = ("policy", "apply", "new.yaml", "--config", instance, "--socket", path)
        ended = cli.on_terminal(*words, answers={"Sign this?": "n"})
    assert ended.status == Exit.SIGNING_FAILED
    assert "/admin/policy_apply" not in [route for route, _ in broker.asked]


def test_show_tells_each_policy_with_its_digest(cli: Cli, instance: Path, path: Path) -> None:
    two = in_force(instance=a_policy(), project__site=a_policy(name="narrow"))
    words = ("--config", instance, "--socket", path)
    with operator_socket(path, admin_policy_show=two):
        both, one = cli("policy", "show", *words), cli("policy", "show", "--scope", "project/site", *words)
        data = cli("policy", "show", "--json", *words)
    assert f"sha256:{a_policy().digest.hex()}" in both.stdout
    assert "small@" not in one.stdout
    assert '    |   "name": "narrow",' in one.stdout.splitlines()
    told = json.loads(data.stdout)["policies"]
    assert [row["scope"] for row in told] == ["instance", "project/site"]
    assert policy.of(told[0]["policy"]).digest.hex() == told[0]["digest"]
    with operator_socket(path, admin_policy_show=in_force()):
        assert "no policy is in force" in cli("policy", "show", *words).stderr


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}
WRITE = a_definition("write", inputSchema=SCHEMA)
STEPS = [{"number": 1, "text": "enrolled"}, {"number": 2, "text": "run-1 goes on"}, {"number": 3, "text": "0 run"}]


def an_agent(refused: dict[str, str] | None = None, **changes: Any) -> tuple[int, Any]:
    """The answer to agent_show, as far as a policy is explained by it."""
    return 200, {"agents": [{"cn": "worker-a", "calls": {"steps": STEPS, "refused": refused}} | changes]}


def explained(
    cli: Cli, instance: Path, path: Path, *words: str, agent: tuple[int, Any], tools: list[dict[str, Any]]
) -> Done:
    answers = {
        "admin_policy_show": in_force(instance=a_policy()),
        "admin_agent_show": agent,
        "admin_tools_list": (200, {"servers": {"files": tools}}),
    }
    with operator_socket(path, **answers):
        return cli("policy", "explain", "worker-a", *words, "--config", instance, "--socket", path)


def test_explain_without_a_file_is_about_what_is_in_force_and_accepted(cli: Cli, instance: Path, path: Path) -> None:
    def outcome(tool: str, arguments: str) -> str:
        done = explained(cli, instance, path, tool, arguments, "--json", agent=an_agent(), tools=[a_tool(WRITE, WRITE)])
        return str(json.loads(done.stdout)["outcome"])

    assert outcome("files.write", '{"path": "a"}') == "act"
    assert outcome("files.write", '{"other": "a"}') == "invalid_arguments"
    assert outcome("files.read", "{}") == "unknown_tool"


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (a_tool(a_definition("write"), WRITE), "tool_changed"),
        (a_tool(WRITE), "unknown_tool"),
        (a_tool(WRITE, WRITE) | {"state": "unavailable", "refused": "server_unavailable"}, "server_unavailable"),
    ],
    ids=["changed", "quarantined", "unavailable"],
)
def test_explain_says_what_a_call_of_a_tool_that_is_shut_gets(
    cli: Cli, instance: Path, path: Path, row: dict[str, Any], code: str
) -> None:
    done = explained(cli, instance, path, "files.write", "{}", "--json", agent=an_agent(), tools=[row])
    told = json.loads(done.stdout)
    assert (told["outcome"], told["denied"], told["steps"][-1]["number"]) == (code, True, 4)


def test_explain_shows_how_the_agent_stands_and_what_bars_it(cli: Cli, instance: Path, path: Path) -> None:
    words, tools = ("files.write", '{"path": "a"}'), [a_tool(WRITE, WRITE)]
    good = explained(cli, instance, path, *words, agent=an_agent(), tools=tools).stdout.splitlines()
    assert good[:3] == ["1  enrolled", "2  run-1 goes on", "3  0 run"]
    assert (good[3][:3], good[-1].split()[0]) == ("4  ", "act")
    barred = an_agent({"code": "budget_exceeded", "reason": "tool_calls 5/5"})
    lines = explained(cli, instance, path, *words, agent=barred, tools=tools).stdout.splitlines()
    assert (lines[:-1], lines[-1]) == (good[:-1], "denied    budget_exceeded: tool_calls 5/5")
    done = explained(cli, instance, path, *words, "--json", agent=barred, tools=tools)
    told = json.loads(done.stdout)
    assert (told["outcome"], told["denied"], told["reason"]) == ("budget_exceeded", True, "tool_calls 5/5")
    assert [step["number"] for step in told["steps"]][:4] == [1, 2, 3, 4]


def test_explain_says_what_is_not_known_of_the_agent(cli: Cli, instance: Path, path: Path) -> None:
    words, tools = ("files.write", '{"path": "a"}'), [a_tool(WRITE, WRITE)]
    nobody = explained(cli, instance, path, *words, agent=(200, {"agents": []}), tools=tools)
    assert nobody.stdout.splitlines()[0] == "1  nobody is enrolled as worker-a: what follows is as if somebody were"
    untold = explained(cli, instance, path, *words, agent=an_agent(calls=None), tools=tools)
    assert ("steps 1 to 3 are left out" in untold.stderr, untold.stdout[:3]) == (True, "4  ")
    (cli.folder / "one.yaml").write_text(FILE)
    offline = cli("policy", "explain", "worker-a", *words, "--policy", "one.yaml")
    assert offline.stdout[:3] == "4  "
    assert "with --policy: how worker-a stands is not known here, so steps 1 to 3 are left out" in offline.stderr
