"""What each agent harness reads, and where it looks for it. Pure: nothing here touches a file.

The formats, as their makers write them down (seen in November 2026):

- Claude Code: `.mcp.json` and `~/.claude.json` hold `mcpServers`: https://code.claude.com/docs/en/mcp; a bare tool name
  in `permissions.deny` takes the tool away: https://code.claude.com/docs/en/permissions; the tools' names:
  https://code.claude.com/docs/en/tools-reference; skills: https://code.claude.com/docs/en/skills
- Codex: `[mcp_servers.NAME]`, in a project only once it is trusted: https://developers.openai.com/codex/mcp; skills in
  `.agents/skills`: https://developers.openai.com/codex/skills; `features.shell_tool`:
  https://github.com/openai/codex/pull/6481
- opencode 1: `mcp.NAME` https://opencode.ai/v1/docs/mcp-servers, `permission` https://opencode.ai/v1/docs/permissions,
  skills https://opencode.ai/v1/docs/skills. opencode 2 reads those too (https://opencode.ai/docs/migrate-v1); its own
  are `mcp.servers.NAME` https://opencode.ai/docs/mcp-servers and `permissions` https://opencode.ai/docs/permissions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Harness = Literal["claude-code", "codex", "opencode", "json"]
Scope = Literal["project", "user"]

_SKILL = Path("skills", "operator-directives", "SKILL.md")
# Monitor runs a shell command too, in the background.
_CLAUDE_BUILTIN = ["Bash", "PowerShell", "Monitor", "Write", "Edit", "NotebookEdit", "WebFetch"]
CHECKS: Mapping[Harness, str] = {
    "claude-code": "claude mcp list; in a project Claude Code asks you once whether it may use the server",
    "codex": "codex mcp list; a project's .codex/config.toml is read only once you trust the project",
    "opencode": "opencode mcp list",
    "json": "your harness's own list of MCP servers",
}


@dataclass(frozen=True, slots=True)
class Server:
    """The MCP server as a harness starts it."""

    name: str
    command: str
    args: tuple[str, ...]

    def entry(self) -> dict[str, Any]:
        """The form that most harnesses share."""
        return {"command": self.command, "args": list(self.args)}


@dataclass(frozen=True, slots=True)
class Want:
    """A value that a file is to hold under these keys. A list's elements join those that are there."""

    keys: tuple[str, ...]
    value: Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where a harness looks, in one scope. root: what a write never leaves, whatever the symlinks in it say."""

    root: Path
    config: Path
    skill: Path
    settings: Path


@dataclass(frozen=True, slots=True)
class File:
    """A file and what it is to hold. native: the same for an opencode file that is in version 2's own form."""

    path: Path
    wants: tuple[Want, ...]
    native: tuple[Want, ...] = ()

    def wants_beside(self, data: Mapping[str, Any]) -> tuple[Want, ...]:
        """What it is to hold, in the form of what it holds already."""
        return self.native if self.native and _is_native(data) else self.wants


def place(harness: Harness, scope: Scope, cwd: Path, home: Path, env: Mapping[str, str]) -> Place:
    """Where this harness looks in this scope."""
    user = scope == "user"
    root = home if user else cwd
    if harness == "codex":
        folder = _moved(env, "CODEX_HOME") or home / ".codex" if user else cwd / ".codex"
        return Place(folder if user else cwd, folder / "config.toml", root / ".agents" / _SKILL, folder / "config.toml")
    if harness == "opencode":
        base = _moved(env, "XDG_CONFIG_HOME")
        folder = (base or home / ".config") / "opencode" if user else cwd
        config = folder / "opencode.json"
        skills = folder if user else cwd / ".opencode"
        return Place(base or root if user else cwd, config, skills / _SKILL, config)
    moved = _moved(env, "CLAUDE_CONFIG_DIR") if user else None
    folder = moved or root / ".claude"
    config = (moved or home) / ".claude.json" if user else cwd / ".mcp.json"
    return Place(moved or root, config, folder / _SKILL, folder / "settings.json")


def files(harness: Harness, at: Place, server: Server, *, deny_builtin: bool) -> list[File]:
    """The files to have, each with what it is to hold; the server's is the first."""
    if harness == "codex":
        denied = (Want(("features", "shell_tool"), False),) if deny_builtin else ()
        return [File(at.config, (Want(("mcp_servers", server.name), server.entry()), *denied))]
    if harness == "opencode":
        return [_opencode(at, server, deny_builtin)]
    first = File(at.config, (Want(("mcpServers", server.name), server.entry()),))
    if harness == "json" or not deny_builtin:
        return [first]
    return [first, File(at.settings, (Want(("permissions", "deny"), _CLAUDE_BUILTIN),))]


def _opencode(at: Place, server: Server, deny_builtin: bool) -> File:
    entry = {"type": "local", "command": [server.command, *server.args]}
    wants = [Want(("mcp", server.name), entry | {"enabled": True})]
    native = [Want(("mcp", "servers", server.name), entry)]
    if deny_builtin:
        wants += [Want(("permission", tool), "deny") for tool in ("bash", "edit", "webfetch")]
        rules = [{"action": tool, "resource": "*", "effect": "deny"} for tool in ("shell", "edit", "webfetch")]
        native.append(Want(("permissions",), rules))
    return File(at.config, tuple(wants), tuple(native))


def _is_native(data: Mapping[str, Any]) -> bool:
    """Is this opencode configuration in version 2's own form? Version 1 may know a server called `servers`."""
    mcp = data.get("mcp")
    servers = mcp.get("servers") if isinstance(mcp, dict) else None
    return "permissions" in data or (isinstance(servers, dict) and "type" not in servers)


def _moved(env: Mapping[str, str], name: str) -> Path | None:
    """Where the user moved the harness's folder, if so. A relative one depends on where the harness starts."""
    moved = Path(env.get(name, ""))
    return moved if moved.is_absolute() else None
