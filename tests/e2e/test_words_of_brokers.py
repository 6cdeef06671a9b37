"""A broker that is hostile, or something in its place: what it says reaches no terminal as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.e2e.hostile import HOW, TEXT, run, shape
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.operator_socket import operator_socket
from tests.rig import Rig

pytestmark = [pytest.mark.promise("P9"), pytest.mark.promise("P25")]


def test_a_hostile_operator_socket_writes_no_terminal(rig: Rig, tmp_path: Path) -> None:
    """Not the broker but something that took its socket's place: all its texts hostile, also where none should be."""
    row = {
        "id": TEXT, "state": TEXT, "kind": TEXT, "tool": TEXT, "op": TEXT, "target": {"cn": TEXT, "generation": TEXT},
        "reason": TEXT, "issued_at": TEXT, "not_before": TEXT, "expires_at": TEXT, "fingerprint": TEXT,
        "pointer": {"state": "failed", "last_error": TEXT, "attempts": TEXT}, TEXT: TEXT,
    }  # fmt: skip
    agent = {"cn": TEXT, "generation": TEXT, "state": TEXT, "certificate": {"not_after": TEXT, "renewals": TEXT}}
    refusal = {"error": TEXT, "reason": TEXT, "hint": TEXT}
    events = [{"kind": kind, "at": TEXT, "why": TEXT, "channel": TEXT, "reason": TEXT, "cn": TEXT, "state": TEXT}
              for kind in ("state", "pointer_failed", "pointer_delivered", "directive_invalidated", TEXT)]  # fmt: skip
    resolved = {"cn": "worker-a", "generation": 1}
    send = ("directive", "send", "worker-a", "--instruction", "x")
    good: dict[str, tuple[int, Any]] = {
        "directive_list": (200, {"directives": [row, row]}),
        "directive_send": (200, {"id": TEXT, "delivered": True}),
        "directive_resolve": (200, resolved),
        "directive_selftest": (200, {"ok": True, "fingerprint": TEXT, "warnings": [TEXT, TEXT]}),
        "directive_revoke": (200, {"revoked": False, TEXT: TEXT}),
        "admin_agent_list": (200, {"agents": [agent, agent]}),
        "admin_agent_show": (200, {"agents": [agent]}),
        "admin_agent_invite": (200, {"broker_ca": TEXT, "broker_url": TEXT, "expires_at": TEXT}),
        "admin_observe": (200, [*events, {"kind": "directive_revoked", "at": TEXT}]),
    }
    bad = dict.fromkeys(good, (409, refusal))
    lines = {"list": 3, "agents": 3}
    commands = [
        ("list", ("directive", "list")), ("show", ("directive", "show", "a")), ("wait", (*send, "--wait")),
        ("selftest", ("directive", "selftest")), ("revoke", ("directive", "revoke", "a")),
        ("agents", ("agent", "list")), ("agent", ("agent", "show", "a")),
        ("invite", ("agent", "invite", "a", "--out", str(tmp_path / "b"))), ("status", ("broker", "status")),
    ]  # fmt: skip
    path = tmp_path / "s"
    for answers in (good, bad):
        with operator_socket(path, **answers) as fake:
            for name, words in commands:
                health = {"instance": "demo", "version": TEXT, "agent_door": TEXT} if name == "status" else None
                if health:
                    fake.answers = {**fake.answers, "/health": (200, health)}
                got = run(rig, "here", *words, "--socket", str(path), expect=None)
                if answers is good and name in lines:
                    assert len(got) == lines[name], got
                run(
                    rig,
                    "on a terminal",
                    *words,
                    *(["--yes"] if "send" in words else []),
                    "--socket",
                    str(path),
                    expect=None,
                )


HOSTILE_ANSWERS: dict[str, tuple[int, bytes]] = {
    "refusal": (403, json.dumps({"error": TEXT, "hint": TEXT}).encode()),
    "failure": (500, TEXT.encode()),
    "no JSON": (200, TEXT.encode()),
    "strange members": (200, json.dumps({TEXT: TEXT, "cert": TEXT, "id": TEXT, "pointers": [{"id": TEXT}]}).encode()),
    "twice": (200, b'{"%s":1,"%s":2}' % ((json.dumps(TEXT)[1:-1].encode(),) * 2)),
}


@pytest.mark.parametrize("case", HOSTILE_ANSWERS)
def test_a_hostile_broker_writes_no_terminal_beside_an_agent(rig: Rig, tmp_path: Path, case: str) -> None:
    with FakeBroker() as broker:
        bundle, identity = tmp_path / "bundle", str(tmp_path / "identity")
        bundle.write_bytes(broker.bundle("worker-a"))
        run(rig, "here", "agent", "enrol", "--bundle", str(bundle), "--identity", identity)
        bundle.write_bytes(broker.bundle("worker-a"))
        status, body = HOSTILE_ANSWERS[case]
        for route in ("/enrol", "/renew", "/directive/consume", "/directive/check", "/inbox"):
            broker.answers[route] = (status, body, {"x-hostile": "\x1b[2J"})
        for words in (
            ("enrol", "--bundle", str(bundle)), ("renew", "--force"), ("check", "a"), ("inbox",),
            ("consume", "a") if status < 500 else ("check", "a"),
        ):  # fmt: skip
            lines = run(rig, "here", "agent", *words, "--identity", identity, expect=None)
            assert shape(lines) in (["error", "hint"], ["error"]), (words, lines)


def test_a_hostile_certificate_is_refused_in_two_lines(rig: Rig, tmp_path: Path) -> None:
    with FakeBroker() as broker:
        bundle = tmp_path / "bundle"
        bundle.write_bytes(broker.bundle("worker-a"))
        odd = x509.UniformResourceIdentifier("lever://demo/agent/x\x1b[2J/generation/1")
        broker.issue = lambda key, cn, generation: broker.ca.sign(key, TEXT[:60], odd)
        lines = run(
            rig, "piped", "agent", "enrol", "--bundle", str(bundle), "--identity", str(tmp_path / "i"), expect=6
        )
        assert shape(lines) == ["error", "hint"]


@pytest.mark.parametrize("how", HOW)
def test_a_hostile_action_is_shown_one_fact_a_line(rig: Rig, tmp_path: Path, how: str) -> None:
    with FakeBroker() as broker:
        bundle, identity = tmp_path / "bundle", str(tmp_path / "identity")
        bundle.write_bytes(broker.bundle("worker-a"))
        run(rig, how, "agent", "enrol", "--bundle", str(bundle), "--identity", identity)
        args = {TEXT: [TEXT, {TEXT: TEXT}]}
        broker.directives["a"] = json.dumps(
            {"id": "a", "kind": "tool_call", "action": {"kind": "tool_call", "tool": TEXT, "args": args}, TEXT: TEXT}
        ).encode()
        lines = run(rig, how, "agent", "consume", "a", "--identity", identity)
        assert [line.split()[0] for line in lines[:4]] == ["directive", "kind", "tool", "args"]
        assert len(lines) == 5
        broker.directives["b"] = json.dumps({"id": "b", "kind": "instruction", "advisory_text": TEXT}).encode()
        lines = run(rig, how, "agent", "consume", "b", "--identity", identity)
        assert [line.split()[0] for line in lines[:2]] == ["directive", "kind"]
        assert all(line.startswith("     ") for line in lines[2:])
        assert len(lines) == 3 + TEXT.count("\n")


BUNDLES = ("ticket", "broker_ca", "broker_url", "agent_cn")


@pytest.mark.parametrize("field", [*BUNDLES, "another"])
def test_a_hostile_bundle_is_refused_in_two_lines(rig: Rig, tmp_path: Path, field: str) -> None:
    good = dict.fromkeys(BUNDLES, "x")
    path = tmp_path / "bundle"
    for raw in (json.dumps({**good, field: TEXT}), json.dumps({**good, TEXT: field}), TEXT):
        path.write_text(raw)
        lines = run(rig, "here", "agent", "enrol", "--bundle", str(path), "--identity", str(tmp_path / "i"), expect=7)
        assert shape(lines) == ["error", "hint"]
