"""`lever policy apply` and `show`: what comes into force is what was read, and what it changes was told."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

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


def test_explain_without_a_file_is_about_what_is_in_force_and_accepted(cli: Cli, instance: Path, path: Path) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}
    write = a_definition("write", inputSchema=schema)
    answers = {
        "admin_policy_show": in_force(instance=a_policy()),
        "admin_tools_list": (200, {"servers": {"files": [a_tool(a_definition("write"), write)]}}),
    }
    words = ("--json", "--config", instance, "--socket", path)
    with operator_socket(path, **answers):
        good = cli("policy", "explain", "worker-a", "files.write", '{"path": "a"}', *words)
        bad = cli("policy", "explain", "worker-a", "files.write", '{"other": "a"}', *words)
        unknown = cli("policy", "explain", "worker-a", "files.read", "{}", *words)
    assert json.loads(good.stdout)["outcome"] == "act", good.stderr
    assert json.loads(bad.stdout)["outcome"] == "invalid_arguments", "the accepted schema, not the one of now"
    assert json.loads(unknown.stdout)["outcome"] == "unknown_tool"
