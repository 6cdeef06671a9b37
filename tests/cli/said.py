"""What a broker says of policies, tools and requests, for tests in which it says what a test wants."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from broker.wire import catalogue, policy, server_identity, strict_json
from lever import show

REQUEST = "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"
RESOLVED = (200, {"cn": "worker-a", "slug": "worker-a", "generation": 3})
GRANTED = (200, {"id": "act-1", "granted": True, "request_id": REQUEST})
# Everything with which a text could pass for something else: lines of its own, colours, order, nothing at all.
HOSTILE = 'x"\r\n  account   "other"\n\x1b[2J\u202egnp.exe\u2066\u200b\ufeff\xad\U000e0041\x07'


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Where a socket may be, short enough for every system."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder / "operator.sock"
    shutil.rmtree(folder)


def a_request(arguments: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A request as GET /request tells it; keyword arguments replace its fields."""
    raw = strict_json.canonical({"path": "a.txt"} if arguments is None else arguments)
    return {
        "request": REQUEST, "state": "pending", "regime": "act", "agent": {"cn": "worker-a", "generation": 3},
        "run": "run-1", "tool": "files.write", "account": "mail", "resources": ["path:a.txt"],
        "args_digest": sha256(raw).hexdigest(), "tool_digest": "ab" * 32, "policies": ["cd" * 32],
        "opened_at": "2026-01-01T00:00:00Z", "expires_at": "2126-01-01T00:10:00Z", "answer": None, "note": None,
        "args": base64.b64encode(raw).decode(),
    } | changes  # fmt: skip


def a_policy(**changes: Any) -> policy.Policy:
    """A small policy; keyword arguments replace its keys."""
    lists = {"allowed": ["files.read"], "approval_required": ["files.write"], "denied": ["*.*delete*"]}
    value = {"v": 1, "name": "small", "default_action": "deny", "tool_allowlist": lists}
    return policy.of(value | {"accounts": {"mail": {}, "payroll": {"sensitive": True}}} | changes)


def in_force(accepted: tuple[str, ...] = (), **scopes: policy.Policy) -> tuple[int, Any]:
    """The answer to policy_show. A scope is written with `__` for its slash."""
    rows = {scope.replace("__", "/"): one for scope, one in scopes.items()}
    return 200, {
        "policies": [
            {"scope": scope, "version": one.version, "digest": one.digest.hex(), "policy": one.raw.decode()}
            for scope, one in rows.items()
        ],
        "accepted": [*accepted],
    }


def a_definition(name: str = "write", **changes: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}} | changes


IDENTITY = {"name": "files", "version": "1.0", "reached": server_identity.by_command(["/opt/files", "--root", "/a b"])}


def a_tool(definition: dict[str, Any], accepted: dict[str, Any] | None = None) -> dict[str, Any]:
    """A row of tools_list. The digests are looked at by people alone."""
    state = "quarantined" if accepted is None else "accepted" if accepted == definition else "changed"
    refused = {"quarantined": "unknown_tool", "accepted": None, "changed": "tool_changed"}[state]
    return {
        "tool": f"files.{definition['name']}", "state": state, "refused": refused, "why": None, "digest": "12" * 32,
        "accepted_digest": "34" * 32 if accepted else None,
        "identity": IDENTITY, "accepted_identity": IDENTITY if accepted else None,
        "definition": definition, "accepted_definition": accepted,
    }  # fmt: skip


def pin(definition: dict[str, Any]) -> catalogue.PinnedTool:
    return catalogue.pin("files", definition, server_identity.read(IDENTITY))


def undisguised(text: str) -> bool:
    """Can every character be seen, whoever wrote it, and does each line stand alone?"""
    return all(character == "\n" or not show.is_hidden(character) for character in text)


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
