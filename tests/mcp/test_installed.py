"""From the configuration that `lever agent install` wrote: a client starts what stands there, and consumes."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.mcp.conftest import Beside
from tests.rig import LEVER, WRITE_FILE


def common(entry: dict[str, Any]) -> StdioServerParameters:
    return StdioServerParameters(command=entry["command"], args=entry["args"])


def listed(entry: dict[str, Any]) -> StdioServerParameters:
    program, *args = entry["command"]
    return StdioServerParameters(command=program, args=args)


Read = Callable[[Path], StdioServerParameters]
HARNESSES: dict[str, Read] = {
    "claude-code": lambda p: common(json.loads((p / ".mcp.json").read_text())["mcpServers"]["lever"]),
    "codex": lambda p: common(tomllib.loads((p / ".codex/config.toml").read_text())["mcp_servers"]["lever"]),
    "opencode": lambda p: listed(json.loads((p / "opencode.json").read_text())["mcp"]["lever"]),
}


@pytest.mark.parametrize("harness", HARNESSES)
async def test_what_a_harness_is_told_to_start_consumes_a_directive(
    beside: Beside, tmp_path: Path, harness: str
) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    argv = [LEVER, "agent", "install", harness, "--write", "--identity", str(beside.identity)]
    subprocess.run(argv, cwd=project, env={**os.environ, "HOME": str(home)}, check=True, capture_output=True)
    async with Client(HARNESSES[harness](project)) as client:
        id = beside.rig.send(beside.cn, action=WRITE_FILE)
        result = await client.call_tool("directive_consume", {"id": id})
        assert result.structured_content["action"]["args"] == WRITE_FILE.args
