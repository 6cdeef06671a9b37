"""Policies, tools and calls to judge."""

from __future__ import annotations

from typing import Any

from broker.rules.authority import Call, Judgement, judge
from broker.wire import catalogue, policy
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Cn
from broker.wire.policy import Policy

AGENT = Cn("worker-a")
TAME = {"destructiveHint": False, "openWorldHint": False}


def document(
    allowed: tuple[str, ...] = (),
    approval: tuple[str, ...] = (),
    denied: tuple[str, ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """A policy as a JSON value."""
    lists = {"allowed": [*allowed], "approval_required": [*approval], "denied": [*denied]}
    return {"v": 1, "name": "sample", "default_action": "deny", "tool_allowlist": lists, **more}


def policy_of(*args: Any, **more: Any) -> Policy:
    return policy.of(document(*args, **more))


def tool(qualified: str = "files.read", schema: dict[str, Any] | None = None, **annotations: bool) -> PinnedTool:
    """A pinned tool that takes anything, unless a schema says otherwise."""
    server, _, name = qualified.partition(".")
    definition: dict[str, Any] = {
        "name": name,
        "description": "A tool.",
        "inputSchema": {"type": "object", **(schema or {})},
    }
    if annotations:
        definition["annotations"] = annotations
    return catalogue.pin(server, definition)


def ask(tool: PinnedTool, layers: Policy | list[Policy], arguments: Any = None) -> Judgement:
    """The judgement of a call of this tool."""
    layers = layers if isinstance(layers, list) else [layers]
    return judge(tool, layers, Call(AGENT, tool.qualified, {} if arguments is None else arguments))


def one_tool(entry: dict[str, Any], *, tier: str = "allowed", name: str = "files.read", **more: Any) -> Policy:
    """A policy for one tool, with an account `work` and a sensitive one `payroll`."""
    lists: dict[str, Any] = {"allowed": (), "approval": (), "denied": ()} | {tier: (name,)}
    accounts = {"work": {}, "payroll": {"sensitive": True}}
    return policy_of(**lists, tools={name: entry}, **({"accounts": accounts} | more))


def outcome(judgement: Judgement) -> str:
    """The regime, or the code of the refusal."""
    return judgement.regime or judgement.decision.code  # type: ignore[union-attr,return-value]


WHOLE = policy_of(
    ("files.read", "mail.read", "scratch.note"),
    ("files.write", "mail.*"),
    ("*.*delete*", "*.*admin*"),
    accounts={"work": {"lease_seconds": 60, "lease_operations": 5}, "payroll": {"sensitive": True}},
    budgets={"max_tool_calls": 100, "max_cost_cents": 500, "max_wall_time_secs": 3600},
    tools={
        "files.read": {
            "class": "read",
            "resources": [{"pointer": "/paths/*", "kind": "path"}],
            "rules": [{"pointer": "/paths/*", "prefix": ["/srv/a", "/srv/b"]}, {"pointer": "/root", "absent": True}],
        },
        "mail.read": {
            "class": "read",
            "account": {"pointer": "/account"},
            "reviewed": f"sha256:{'1f' * 32}",
            "rules": [{"pointer": "/limit", "min": 1, "max": 50}, {"pointer": "/folder", "in": ["inbox", 1, True]}],
        },
        "files.write": {
            "class": "mutation",
            "account": "work",
            "rules": [{"pointer": "/text", "max_length": 10, "otherwise": "approval"}],
        },
        "scratch.note": {
            "class": "mutation",
            "consent": "none",
            "rules": [{"pointer": "/url", "host_in": "a.example"}],
        },
    },
)
"""Every key of the format, once."""
