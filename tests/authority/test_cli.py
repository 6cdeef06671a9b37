"""The whole of it at a shell: a policy applied, tools accepted, calls answered, and receipts of all of that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.wire.names import NAMESPACE_DIRECTIVE
from lever.exits import Exit
from tests.authority.desk import SERVERS, Desk, call, code, desk, sent
from tests.cli.conftest import Cli, Done
from tests.cli.test_mistakes import STOPPED_BY_HAND
from tests.fakes.soft_key import SoftKey
from tests.rig import Agent

BROKEN = """  broken: {command: [/bin/sh, -c, "echo it lacks a part >&2; exit 1"], sandbox: none}
"""
POLICY = """
v: 1
name: shell
default_action: deny
tool_allowlist:
  allowed: [s.pid, s.look]
  approval_required: [s.echo, s.dies]
  denied: ["*.*delete*", "s.fails"]
tools:
  s.pid: {class: read, account: mail}
  s.look: {class: read}
  s.echo: {class: mutation, resources: [{pointer: /path, kind: path}]}
accounts:
  mail: {lease_seconds: 60, lease_operations: 2}
"""


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("shell"), SERVERS + BROKEN)
    (made.rig.folder / "policy.yaml").write_text(POLICY)
    yield made
    made.rig.close()


@pytest.fixture
def lever(office: Desk) -> Cli:
    return Cli(office.rig.folder)


@pytest.fixture
def opened(office: Desk, lever: Cli) -> Cli:
    """A policy in force and the tools accepted, both at a shell; the second time as well."""
    assert lever("policy", "apply", "policy.yaml").status == 0
    done = lever("tools", "accept", "s")
    assert done.status == 0, done.stderr
    return lever


def told(done: Done) -> Any:
    assert done.status == 0, done.stderr
    return json.loads(done.stdout)


def receipts(lever: Cli, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lever("receipt", "list", *words, "--json").stdout.splitlines()]


def asked(agent: Agent, name: str, arguments: dict[str, Any]) -> str:
    answer = call(agent, name, arguments)
    assert code(answer) == "consent_required", answer
    id: str = answer["structuredContent"]["request_id"]
    return id


def test_a_server_that_does_not_start_is_listed_with_what_it_said(office: Desk, opened: Cli) -> None:
    listed = opened("tools", "list")
    assert ["broken", "unavailable"] in [line.split()[:2] for line in listed.stdout.splitlines()]
    assert "s.echo" in listed.stdout
    assert "can't be read: it ended with exit status 1: it lacks a part" in listed.stderr
    done = opened("tools", "accept", "broken")
    assert (done.status, "it lacks a part" in done.stderr) == (Exit.REFUSED, True), done.stderr


@pytest.mark.promise("P20", "P25")
def test_from_a_policy_to_a_receipt(office: Desk, opened: Cli) -> None:
    agent, lever = office.rig.enrol("shell-a"), opened
    assert "shell@" in lever("policy", "show").stdout
    (office.rig.folder / "other.yaml").write_text(POLICY.replace("s.look", "s.none"))
    narrowed = lever("policy", "apply", "other.yaml", "--scope", "agent/nobody")
    assert "warning: no accepted tool has these names: s.none; see lever tools list" in narrowed.stderr.splitlines()
    listed = told(lever("tools", "list", "s", "--json"))["servers"]["s"]
    assert {row["state"] for row in listed} == {"accepted"}
    request = asked(agent, "s__echo", {"path": "/srv/a", "text": "x"})
    assert request in lever("request", "list").stdout
    assert 'argument  "text": "x"' in lever("request", "show", request).stdout
    done = lever("request", "approve", request)
    assert done.status == 0, done.stderr
    assert '    | argument  "path": "/srv/a"' in done.stderr.splitlines()
    assert '    | resource  "path:/srv/a"' in done.stderr.splitlines()
    assert sent(call(agent, "s__echo", {"path": "/srv/a", "text": "x"})) == {"path": "/srv/a", "text": "x"}
    assert lever("request", "approve", request).status == Exit.REFUSED
    (receipt,) = [one for one in receipts(lever) if one["agent"]["cn"] == agent.cn]
    assert (receipt["tool"], receipt["outcome"], receipt["consent"]["kind"]) == ("s.echo", "done", "act")
    verified = lever("receipt", "verify")
    assert verified.status == 0, verified.stdout + verified.stderr
    shown = lever("receipt", "show", receipt["claim"]).stdout
    assert receipt["consent"]["fingerprint"] in shown
    assert '    | argument  "text": "x"' in shown.splitlines()


def test_a_receipt_tells_whether_the_security_key_was_touched(office: Desk, opened: Cli) -> None:
    agent, lever, key = office.rig.enrol("touch-a"), opened, SoftKey("sk-ed25519")
    with office.rig.allowed_signers.open("a") as file:
        file.write(f"operator@demo {key.public_line}\n")
    request = asked(agent, "s__echo", {"path": "/srv/t"})
    raw = office.approval(request)
    for flags in (0x00, 0x04):  # ssh-keygen finds both good
        refused = office.rig.submit(raw, key.sign(NAMESPACE_DIRECTIVE, raw, flags=flags))
        assert (refused.status_code, refused.json()["reason"]) == (400, "bad_signature")
        assert "without being touched" in refused.text
        assert code(call(agent, "s__echo", {"path": "/srv/t"})) == "consent_required"
    assert office.rig.submit(raw, key.sign(NAMESPACE_DIRECTIVE, raw, flags=0x05)).status_code == 200
    assert sent(call(agent, "s__echo", {"path": "/srv/t"})) == {"path": "/srv/t"}
    (receipt,) = [one for one in receipts(lever, "--gestures") if one["agent"]["cn"] == agent.cn]
    policy = f"policy {receipt['policies'][0]['digest'][:12]}"
    plain = "no gesture: the key can't tell"
    assert receipt["gestures"] == {"act": "touch and PIN", policy: plain, "tools of s": plain}
    assert "gesture       touch and PIN\n" in lever("receipt", "show", receipt["claim"]).stdout
    assert "     act: touch and PIN\n" in lever("receipt", "verify").stdout


def test_a_read_asks_once_and_the_lease_is_as_the_policy_says(office: Desk, opened: Cli) -> None:
    agent, lever = office.rig.enrol("reads-a"), opened
    request = asked(agent, "s__pid", {})
    answer = told(lever("request", "approve", request, "--json"))
    assert (answer["seconds"], answer["operations"]) == (60, 2)
    assert not call(agent, "s__pid", {}).get("isError")
    (open_one,) = [one for one in told(lever("lease", "list", "--json"))["leases"] if one["agent"]["cn"] == agent.cn]
    assert (open_one["lease"], open_one["used"]) == (answer["id"], 1)
    assert lever("lease", "close", answer["id"]).stdout == f"closed {answer['id']}\n"
    assert lever("lease", "close", answer["id"]).status == 0, "closing is idempotent"
    never = lever("lease", "close", "nope")
    assert (never.status, "there is no lease nope" in never.stderr) == (Exit.REFUSED, True)
    assert code(call(agent, "s__pid", {})) == "consent_required"
    done = lever("lease", "open", agent.cn, "mail", "--minutes", "1440", "--json")
    assert (told(done)["seconds"], told(done)["deprecated"]) == (60, "minutes")
    assert not call(agent, "s__pid", {}).get("isError")
    assert [one["consent"]["kind"] for one in receipts(lever) if one["agent"]["cn"] == agent.cn] == ["lease"] * 2
    assert lever("receipt", "verify").status == 0


def test_a_denied_request_and_a_revoked_act_come_to_nothing(office: Desk, opened: Cli) -> None:
    agent, lever = office.rig.enrol("denied-b"), opened
    request = asked(agent, "s__echo", {"path": "/a"})
    assert lever("request", "deny", request, "--note", "Not this one.").status == 0
    assert code(call(agent, "s__echo", {"path": "/a"})) == "request_denied"
    other = asked(agent, "s__echo", {"path": "/b"})
    act = told(lever("request", "approve", other, "--json"))["id"]
    assert lever("request", "revoke", act).status == 0
    assert lever("request", "revoke", act).status == Exit.REFUSED
    assert code(call(agent, "s__echo", {"path": "/b"})) == "consent_required"


def test_the_policy_in_force_explains_a_call(office: Desk, opened: Cli) -> None:
    done = opened("policy", "explain", "anyone", "s.echo", '{"path": "/a"}')
    assert done.stdout.splitlines()[-1].startswith("act"), done.stderr
    done = opened("policy", "explain", "anyone", "s.fails", "{}", "--json")
    assert told(done)["outcome"] == "denied_by_rule"
    office.rig.enrol("explained-a")
    words = ("policy", "explain", "explained-a", "s.echo", '{"path": "/a"}', "--json")
    good = told(opened(*words))
    assert (good["outcome"], [step["number"] for step in good["steps"]][:4]) == ("act", [1, 2, 3, 4])
    assert opened("agent", "pause", "explained-a").status == 0
    barred = told(opened(*words))
    assert (barred["outcome"], barred["steps"][0]) == ("agent_paused", {"number": 1, "text": "agent_paused"})


def test_stop_all_needs_no_key_and_resume_does(office: Desk, opened: Cli, tmp_path: Path) -> None:
    agent, lever = office.rig.enrol("stopped-a"), opened
    away = tmp_path / "keys"
    shutil.move(office.rig.folder / "keys", away)
    try:
        assert lever("stop-all").stdout == "stopped\n"
        assert lever("stop-all").stdout == "it is stopped already\n"
        assert lever("resume").status == Exit.SIGNING_FAILED
    finally:
        shutil.move(away, office.rig.folder / "keys")
    assert code(call(agent, "s__look", {"paths": []})) == "emergency_stop"
    (said,) = (line for line in lever("broker", "status").stdout.splitlines() if line.startswith("stopped"))
    assert "by the operator since 20" in said
    assert "lever resume" in said
    assert f"{STOPPED_BY_HAND} 20" in lever("doctor").stdout
    assert "after lever resume" in lever("directive", "send", "stopped-a", "--instruction", "Go on.").stdout
    tested = lever("directive", "selftest")
    assert (tested.status, "until lever resume" in tested.stderr) == (0, True)
    assert lever("resume").stdout == "resumed\n"
    assert lever("resume").status == Exit.REFUSED
    assert not call(agent, "s__look", {"paths": []}).get("isError")


def test_a_run_that_is_stopped_stays_so(office: Desk, opened: Cli) -> None:
    agent, lever = office.rig.enrol("runs-a"), opened
    assert not call(agent, "s__look", {"paths": []}).get("isError")
    (run,) = [one["run"] for one in told(lever("run", "list", "--json"))["runs"] if one["agent"]["cn"] == agent.cn]
    assert "tool_calls" in lever("run", "show", run).stdout
    assert lever("run", "stop", run).status == 0
    assert lever("run", "stop", run).status == Exit.REFUSED
    assert code(call(agent, "s__look", {"paths": []})) == "run_stopped"
    assert lever("run", "new", agent.cn).status == 0
    assert not call(agent, "s__look", {"paths": []}).get("isError")


def test_what_became_of_a_call_that_nobody_answered_is_noted_once_it_is_known(office: Desk, opened: Cli) -> None:
    agent, lever = office.rig.enrol("lost-a"), opened
    request = asked(agent, "s__dies", {})
    assert lever("request", "approve", request).status == 0
    assert code(call(agent, "s__dies", {})) == "outcome_unknown"
    (lost,) = [one for one in receipts(lever) if one["outcome"] == "outcome_unknown"]
    assert lever("receipt", "note", lost["claim"], "Nothing\u202e was done.").status == 0
    assert '    | note      "Nothing\\u202e was done."' in lever("receipt", "show", lost["claim"]).stdout.splitlines()
    assert lever("receipt", "verify").status == 0
    assert [one["outcome"] for one in receipts(lever) if one["agent"]["cn"] == agent.cn] == ["outcome_unknown"]


def test_a_restart_keeps_policies_tools_and_receipts(office: Desk, opened: Cli) -> None:
    agent, lever = office.rig.enrol("again-a"), opened
    request = asked(agent, "s__echo", {"path": "/srv/b"})
    assert lever("request", "approve", request).status == 0
    office.rig.kill()
    assert lever("receipt", "verify").status == 0, "offline"
    office.rig.start()
    agent.close()
    assert sent(call(agent, "s__echo", {"path": "/srv/b"})) == {"path": "/srv/b"}
    assert code(call(agent, "s__echo", {"path": "/srv/b"})) == "consent_required"
    assert lever("receipt", "verify").status == 0
