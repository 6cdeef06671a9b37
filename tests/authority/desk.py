"""An instance with a tool server behind it, and an operator who applies policies and answers requests."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from broker.journal.inspect import walk
from broker.wire import accepted, catalogue, policy, server_identity, statement
from broker.wire.names import NAMESPACE_ADMIN, Digest
from broker.wire.records import Fact
from broker.wire.statement import Approval, BoundAction, LeaseAction
from tests.rig import Agent, Rig, pair, sign

T = TypeVar("T")
FAKE = Path(__file__).parents[1] / "fakes" / "tool_server.py"
SERVERS = f"""
servers:
  s: {{command: ["{sys.executable}", "-S", "{FAKE}"], sandbox: none}}
"""


READ = {"class": "read"}
MAIL = {"class": "read", "account": "mail"}
BETWEEN = Path(__file__).with_name("between.py")
WATCHED = """
servers:
  s: {{command: ["{python}", "-S", "{between}", "{folder}"], sandbox: none}}
  q: {{command: ["{python}", "-S", "{fake}"], sandbox: none, timeout_s: 1}}
"""


def watched(folder: Path) -> Desk:
    """An instance whose server `s` has `between.py` before it, with files in `beside`; `q` has a second for a call."""
    beside = folder / "beside"
    beside.mkdir(parents=True)
    words = WATCHED.format(python=sys.executable, between=BETWEEN, fake=FAKE, folder=beside)
    made = desk(folder / "office", words).open(wide_policy())
    assert made.accept("q", "silent").status_code == 200
    return made


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


def wide_policy(**changes: Any) -> dict[str, Any]:
    """Reads of the account `mail` and of none, and everything that can go wrong as a mutation."""
    tiers = {
        "allowed": ["s.pid", "s.large", "s.look", "s.changed"],
        "approval_required": ["s.echo", "s.fails", "s.refuses", "q.silent", "s.dies"],
        "denied": ["s.stuck"],
    }
    return a_policy(
        **{
            "tool_allowlist": tiers,
            "tools": {"s.pid": MAIL, "s.large": MAIL, "s.look": READ, "s.changed": READ},
            "accounts": {"mail": {}, "other": {}},
        }
        | changes
    )


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
        found = [(row["definition"], server_identity.read(row["identity"])) for row in rows if row["definition"]]
        pinned = [catalogue.pin(server, one, who) for one, who in found if not names or one["name"] in names]
        return self.signed("tools_accept", accepted.encode(server, pinned))

    def open(self, value: dict[str, Any] | None = None) -> Desk:
        """A policy in force, and the server's tools accepted."""
        assert self.apply(value).status_code == 200
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
        return self.rig.send_raw(self.approval(id, **changes))

    def approval(self, id: str, **changes: Any) -> bytes:
        """What `approve` signs."""
        row = self.pending(id)
        server, _, tool = row["tool"].partition(".")
        values = {
            "request_id": id, "tool": server, "op": tool, "account": row["account"] or "",
            "resources": tuple(row["resources"]), "args_digest": Digest(bytes.fromhex(row["args_digest"])),
            "tool_digest": Digest(bytes.fromhex(row["tool_digest"])),
        }  # fmt: skip
        return self.said(row["agent"], Approval(**(values | changes)))

    def lease(
        self, agent: Agent, account: str, *, seconds: int = 90, ops: int = 20, request: str = ""
    ) -> httpx2.Response:
        target = {"cn": agent.cn, "generation": self.generation(agent.cn)}
        return self.say(target, LeaseAction(account, seconds, ops, request))

    def say(self, target: dict[str, Any], action: Any) -> httpx2.Response:
        return self.rig.send_raw(self.said(target, action))

    def said(self, target: dict[str, Any], action: Any) -> bytes:
        return statement.encode(self.rig.statement(target["cn"], target["generation"], action=action))

    @property
    def beside(self) -> Path:
        """Where `between.py` has its files."""
        return self.rig.folder.parent / "beside"

    def reached(self, tool: str = "") -> list[dict[str, Any]]:
        """Every call that reached the watched server, of a tool or of all."""
        log = self.beside / "lines"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [line["params"] for line in lines if tool in ("", line["params"]["name"])]

    def facts(self, kind: type[T]) -> list[T]:
        """What the journal has of a kind, in order."""
        found: list[Fact] = [record.fact for record in walk(self.rig.state)]
        return [fact for fact in found if isinstance(fact, kind)]

    def acts(self) -> dict[str, dict[str, Any]]:
        """The acts that are remembered, by id."""
        return {row["act"]: row for row in self.signed("request_list").json()["acts"]}

    def tool_call(self, agent: Agent, tool: str, arguments: dict[str, Any]) -> httpx2.Response:
        """Sign a tool_call of the server `s`."""
        target = {"cn": agent.cn, "generation": self.generation(agent.cn)}
        return self.say(target, BoundAction("tool_call", "s", tool, arguments))

    def generation(self, cn: str) -> int:
        with self.rig.line() as line:
            found: int = line.get("/directive/resolve", params={"agent": cn}).json()["generation"]
        return found


def until(true: Callable[[], bool]) -> None:
    """Wait for what has to come: the suite's own limit is the limit."""
    while not true():
        time.sleep(0.005)


def call(agent: Agent, name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    """A tool call of an agent, as the JSON route answers."""
    answer = agent.post("/tools/call", {"name": name, "arguments": {} if arguments is None else arguments, **more})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def asked(agent: Agent, name: str, arguments: Any = None, **more: Any) -> str:
    """A call that lacks consent alone; the request."""
    result = call(agent, name, arguments, **more)
    assert code(result) == "consent_required", result
    found: str = result["structuredContent"]["request_id"]
    return found


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
