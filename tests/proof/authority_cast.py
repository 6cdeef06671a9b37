"""What the story of authority is about: a server's tools, a policy, calls of an agent, and what an operator signs."""

from __future__ import annotations

from typing import Any

from broker.rules.authority import Call
from broker.rules.authority.passage import Ids, Passing
from broker.wire import accepted, catalogue, frozen, policy
from broker.wire.caller import Caller
from broker.wire.catalogue import PinnedTool
from broker.wire.policy import Policy
from broker.wire.server_identity import ServerIdentity, by_command
from broker.wire.statement import Approval, LeaseAction
from broker.wire.verified import Standing
from tests.proof.cast import BOTH, A, caller

SERVER = "files"
WHO = caller(A, 1)
_TOOLS = ("look", "read_mail", "write_file", "shred")


def pinned(name: str, version: str = "1") -> PinnedTool:
    """A tool of the server, as it defines it in this version."""
    who = ServerIdentity("files-server", version, by_command(["/opt/files"]))
    return catalogue.pin(SERVER, {"name": name, "description": "A tool.", "inputSchema": {"type": "object"}}, who)


TOOLS = {name: pinned(name) for name in _TOOLS}
CATALOGUE = accepted.encode(SERVER, TOOLS.values())
OTHERWISE = pinned("write_file", version="2")


def a_policy(name: str, *, denied: tuple[str, ...] = (), **budgets: int) -> Policy:
    """Looking needs nothing, mail a lease, writing an act, and nothing is shredded."""
    return policy.of(
        {
            "v": 1,
            "name": name,
            "default_action": "deny",
            "tool_allowlist": {
                "allowed": ["files.look", "files.read_mail"],
                "approval_required": [tool for tool in ("files.write_file",) if tool not in denied],
                "denied": ["files.shred", *denied],
            },
            "tools": {
                "files.look": {"class": "read"},
                "files.read_mail": {"class": "read", "account": "mail"},
                "files.write_file": {"class": "mutation", "resources": [{"pointer": "/path", "kind": "id"}]},
            },
            "accounts": {"mail": {"lease_operations": 2}},
            "budgets": budgets,
        }
    )


POLICY = a_policy("instance", max_tool_calls=100)
LAYER = a_policy("worker-a", max_tool_calls=24)


def ids(word: str) -> Ids:
    return Ids(f"claim-{word}", f"request-{word}", f"run-{word}")


def passing(
    tool: str,
    path: str = "",
    *,
    word: str = "again",
    call_id: str = "",
    who: Caller = WHO,
    standing: Standing = BOTH,
    seen: PinnedTool | None = None,
) -> Passing:
    """One call on its way. word: what the names that it draws are made of; seen: how the server defines it now."""
    arguments: Any = {"path": path} if path else {}
    call = Call(who.cn, f"{SERVER}.{tool}", arguments)
    return Passing(who, call, call_id, seen or TOOLS[tool], standing, ids(word), {})


def frozen_of(path: str) -> frozen.Frozen:
    return frozen.freeze({"path": path} if path else {})


def approval(request: str, path: str) -> Approval:
    """What the operator signs of a write."""
    digests = frozen_of(path).digest, TOOLS["write_file"].digest
    return Approval(request, SERVER, "write_file", "", (f"id:{path}",), *digests)


def reading(request: str = "") -> LeaseAction:
    """Two reads of the mail within 90 s."""
    return LeaseAction("mail", 90, 2, request)
