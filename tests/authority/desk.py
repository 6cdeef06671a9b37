"""An instance with a tool server behind it, and an operator who applies policies and answers requests."""

from __future__ import annotations

import base64
import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2

from broker.wire import accepted, catalogue, policy, statement
from broker.wire.names import NAMESPACE_ADMIN, Digest
from broker.wire.statement import Approval, LeaseAction
from tests.rig import Agent, Rig, pair, sign

FAKE = Path(__file__).parents[1] / "fakes" / "tool_server.py"
SERVERS = f"""
servers:
  s: {{command: ["{sys.executable}", "-S", "{FAKE}"], sandbox: none}}
"""


def desk(folder: Path, servers: str = SERVERS) -> Desk:
    """A running instance with these servers."""
    rig = Rig.create(folder)
    rig.config.write_text(rig.config.read_text() + servers)
    return Desk(rig.start())


def a_policy(**changes: Any) -> dict[str, Any]:
    """Reads by lease or by themselves, mutations by a signed act, one tool denied; keyword arguments replace keys."""
    return {
        "v": 1,
        "name": "test",
        "default_action": "deny",
        "tool_allowlist": {
            "allowed": ["s.pid", "s.look"],
            "approval_required": ["s.echo", "s.fails"],
            "denied": ["s.dies"],
        },
        "tools": {
            "s.pid": {"class": "read", "account": "mail"},
            "s.look": {"class": "read"},
            "s.echo": {"class": "mutation"},
        },
        "accounts": {"mail": {}},
    } | changes


class Desk:
    """The operator's side of an instance."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def signed(self, op: str, attached: bytes = b"", **params: str) -> httpx2.Response:
        """A signed envelope, with what is attached to it."""
        digest = {"digest": sha256(attached).hexdigest()} if attached else {}
        raw = self.rig.envelope(op, **params, **digest)
        body: dict[str, Any] = pair("envelope", raw, sign(self.rig.key, NAMESPACE_ADMIN, raw))
        if attached:
            body["attachment"] = base64.b64encode(attached).decode()
        return self.rig.post(f"/admin/{op}", body)

    def apply(self, value: dict[str, Any] | None = None, scope: str = "instance") -> httpx2.Response:
        raw = policy.encode(policy.of(a_policy() if value is None else value))
        return self.signed("policy_apply", raw, scope=scope)

    def accept(self, server: str = "s", *names: str) -> httpx2.Response:
        """Accept what the server defines now, all of it or these."""
        rows = self.signed("tools_list", server=server).json()["servers"][server]
        found = [row["definition"] for row in rows if row["definition"]]
        pinned = [catalogue.pin(server, one) for one in found if not names or one["name"] in names]
        return self.signed("tools_accept", accepted.encode(server, pinned))

    def open(self) -> Desk:
        """A policy in force, and the server's tools accepted."""
        assert self.apply().status_code == 200
        answer = self.accept()
        assert answer.status_code == 200, answer.text
        return self

    def pending(self, id: str) -> dict[str, Any]:
        with self.rig.line() as line:
            answer = line.get("/request", params={"id": id})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def approve(self, id: str, **changes: Any) -> httpx2.Response:
        """Sign exactly what waits; keyword arguments replace fields of what is signed."""
        row = self.pending(id)
        server, _, tool = row["tool"].partition(".")
        values = {
            "request_id": id, "tool": server, "op": tool, "account": row["account"] or "",
            "resources": tuple(row["resources"]), "args_digest": Digest(bytes.fromhex(row["args_digest"])),
            "tool_digest": Digest(bytes.fromhex(row["tool_digest"])),
        }  # fmt: skip
        return self.say(row["agent"], Approval(**(values | changes)))

    def lease(
        self, agent: Agent, account: str, *, seconds: int = 90, ops: int = 20, request: str = ""
    ) -> httpx2.Response:
        target = {"cn": agent.cn, "generation": self.generation(agent.cn)}
        return self.say(target, LeaseAction(account, seconds, ops, request))

    def say(self, target: dict[str, Any], action: Any) -> httpx2.Response:
        value = self.rig.statement(target["cn"], target["generation"], action=action)
        return self.rig.send_raw(statement.encode(value))

    def generation(self, cn: str) -> int:
        with self.rig.line() as line:
            found: int = line.get("/directive/resolve", params={"agent": cn}).json()["generation"]
        return found


def call(agent: Agent, name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    """A tool call of an agent, as the JSON route answers."""
    answer = agent.post("/tools/call", {"name": name, "arguments": {} if arguments is None else arguments, **more})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def code(result: dict[str, Any]) -> str:
    """Why a call was not carried out; empty where it was."""
    found: str = result.get("structuredContent", {}).get("code", "") if result.get("isError") else ""
    return found


def text(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


def sent(result: dict[str, Any]) -> Any:
    """The arguments as the echoing server got them, from the very line that it read."""
    return json.loads(text(result))["params"]["arguments"]
