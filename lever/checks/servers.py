"""Checks of the tool servers: what they may see, and whether what confines them is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from lever.checks.finding import Finding
from lever.where import Place


def confined(place: Place) -> Iterator[Finding]:
    """Each server that runs with the broker's own rights, by name; and whether bubblewrap is there for the others."""
    from broker import offline

    commands = {name: server for name, server in place.config.servers.items() if server.command}
    for name in (name for name, server in commands.items() if server.sandbox is None):
        text = f"{name} runs with all rights of the broker (sandbox: none): it can read its keys and its journal"
        hint = f"write in {place.config_path}, under servers.{name}: sandbox: {{read: [...], write: [...]}}"
        yield Finding("tool server", "warn", text, hint)
    sandboxed = [name for name, server in commands.items() if server.sandbox is not None]
    if sandboxed and not shutil.which("bwrap"):
        text = f"there is no bwrap here: {', '.join(sandboxed)} will not be started"
        yield Finding("tool server", "fail", text, "sudo apt-get install bubblewrap")
        return
    flawed = {name: flaw for name in sandboxed if (flaw := offline.sandbox_flaw(place.config, name, os.environ))}
    for name, flaw in flawed.items():
        hint = f"change servers.{name}.sandbox in {place.config_path}: docs/operating/tool-servers.md"
        yield Finding("tool server", "fail", f"{name} will not be started: {flaw}", hint)
    if sound := [name for name in sandboxed if name not in flawed]:
        yield Finding("tool server", "ok", f"confined: {', '.join(sound)}")
