"""The official inspector's command line against `lever agent mcp`, as a harness starts it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from interop.enrolled import CN, node_environment
from tests.rig import LEVER, Rig

TOOL_IS_ERROR = 5  # its exit status for a result with isError
TOOLS = ["directive_consume", "directive_check", "directive_inbox", "directive_report"]


def inspect(rig: Rig, identity: Path) -> str:
    """List, look into the inbox, check, and miss. What it spoke."""

    def ask(method: str, *more: str, expect: int = 0) -> Any:
        argv = ["inspector", "--cli", LEVER, "agent", "mcp", "--identity", str(identity), "--method", method, *more]
        environment = node_environment(identity.parent)
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == expect, (argv, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def call(tool: str, *arguments: str, expect: int = 0) -> Any:
        told = [word for argument in arguments for word in ("--tool-arg", argument)]
        return ask("tools/call", "--tool-name", tool, *told, expect=expect)

    id = rig.send(CN)
    said = ask("initialize")
    assert said["serverInfo"]["name"] == "lever"
    # --strict: a schema that other clients could not take is an error.
    assert [tool["name"] for tool in ask("tools/list", "--strict")["tools"]] == TOOLS
    assert [pointer["id"] for pointer in call("directive_inbox")["structuredContent"]["pointers"]] == [id]
    assert call("directive_check", f"id={id}")["structuredContent"] == {"id": id, "state": "active"}
    missed = call("directive_check", "id=another", expect=TOOL_IS_ERROR)
    assert (missed["isError"], missed["content"][0]["text"]) == (True, "not found")
    return str(said["protocolVersion"])
