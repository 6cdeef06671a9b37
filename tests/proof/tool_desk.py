"""What the hammer's tools are: a server that counts, a policy for it, and how both come into force."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from broker.wire import accepted, catalogue, policy, server_identity
from tests.proof.lines import Lines
from tests.proof.signer import Signer

SERVER = "w"
LOG, ANSWERED = "executions", "answered"
MOST_CALLS, MOST_READS = 8, 3
_COMMAND = Path(__file__).with_name("counting_server.sh")
POLICY: dict[str, Any] = {
    "v": 1,
    "name": "hammered",
    "default_action": "deny",
    "tool_allowlist": {
        "allowed": [f"{SERVER}.look", f"{SERVER}.read"],
        "approval_required": [f"{SERVER}.write"],
        "denied": [],
    },
    "tools": {
        f"{SERVER}.look": {"class": "read"},
        f"{SERVER}.read": {"class": "read", "account": "mail"},
        f"{SERVER}.write": {"class": "mutation"},
    },
    "accounts": {"mail": {"lease_operations": MOST_READS}},
    "budgets": {"max_tool_calls": MOST_CALLS},
}


def configured(folder: Path) -> str:
    """The lines of lever.yaml: the server, with the file that it counts in."""
    return f"servers: {{{SERVER}: {{command: {json.dumps(command(folder))}, sandbox: none}}}}"


def command(folder: Path) -> list[str]:
    """How the server is started."""
    return ["/bin/sh", str(_COMMAND), str(folder / LOG), str(folder / ANSWERED)]


def put_in_force(lines: Lines, signer: Signer) -> None:
    """The policy and the tools, as an operator does it."""
    raw = policy.encode(policy.of(POLICY))
    order = signer.attached("policy_apply", raw, scope="instance")
    assert lines.operator("policy_apply", "/admin/policy_apply", order).done
    listed = lines.operator("tools_list", "/admin/tools_list", signer.envelope("tools_list", server=SERVER))
    assert listed.done, listed.answer
    rows = listed.answer["servers"][SERVER]
    tools = [catalogue.pin(SERVER, row["definition"], server_identity.read(row["identity"])) for row in rows]
    order = signer.attached("tools_accept", accepted.encode(SERVER, tools))
    assert lines.operator("tools_accept", "/admin/tools_accept", order).done


def arguments(word: str) -> dict[str, str]:
    """Of any call to any tool of the server."""
    return {"word": word}


def digest(word: str) -> str:
    """Of those arguments, as docs/formats say it: the SHA-256 of their canonical JSON."""
    return sha256(b'{"word":"%s"}' % word.encode()).hexdigest()


def executions(folder: Path) -> list[tuple[str, str, str]]:
    """Tool, word and mark of every call that reached the server."""
    log = folder / LOG
    lines = log.read_text().splitlines() if log.exists() else []
    return [(tool, word, mark) for tool, word, mark in (line.split() for line in lines)]
