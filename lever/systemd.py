"""Runs systemd's own tools for the broker's unit: start, stop, ask, and the log."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lever.exits import CliError, Exit
from lever.unit import Scope, Unit

_BOOTED = Path("/run/systemd/system")
_LINGERING = Path("/var/lib/systemd/linger")
_LIMIT_S = 600.0  # above every timeout of the unit: systemd gives up first
_ASKED = ("LoadState", "ActiveState", "SubState", "MainPID", "NRestarts", "Result", "Transient", "Description")


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit as its service manager sees it.

    active: as in `systemctl is-active`; result: how it last ended; installed: it has a file, and so is known when it
    does not run.
    """

    scope: Scope
    active: str
    sub: str
    pid: int
    restarts: int
    result: str
    installed: bool

    @property
    def up(self) -> bool:
        """Does it run, or is it being started (again)?"""
        return self.active in ("active", "reloading", "activating")


class Systemd:
    """The service manager of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._environment = dict(os.environ)
        if scope is Scope.USER:
            self._environment.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")

    def why_not(self) -> str:
        """Why this service manager can't be used here; empty if it can."""
        if not shutil.which("systemd-run"):
            return "there is no systemd-run on this machine"
        if not _BOOTED.is_dir():
            return f"systemd does not run this machine: there is no {_BOOTED}"
        manager = Path(self._environment.get("XDG_RUNTIME_DIR", "/run"), "systemd", "private")
        if self.scope is Scope.USER and not manager.exists():
            return f"no service manager runs for this user: there is no {manager}"
        return ""

    def state(self, unit: Unit) -> UnitState | None:
        """The unit, if the manager knows it. Raises CliError when it is another instance's of the same name."""
        asked = [f"--property={name}" for name in _ASKED]
        done = self._run("systemctl", f"--{self.scope}", "show", *asked, "--", unit.name)
        told = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        if done.returncode or told.get("LoadState", "not-found") == "not-found":
            return None
        if told["Description"] != unit.description:
            raise CliError(
                f"expected {unit.name} to be `{unit.description}`, found `{told['Description']}`",
                hint=f"rename one of the two instances, or: systemctl --{self.scope} stop {unit.name}",
                exit=Exit.REFUSED,
            )
        return UnitState(
            scope=self.scope,
            active=told["ActiveState"],
            sub=told["SubState"],
            pid=int(told["MainPID"]),
            restarts=int(told["NRestarts"]),
            result=told["Result"],
            installed=told["Transient"] == "no",
        )

    def start(self, unit: Unit, argv: Sequence[str]) -> None:
        """Run a start command; returns once the unit is ready. When it does not come up, nothing of it stays."""
        self._run("systemctl", f"--{self.scope}", "reset-failed", "--", unit.name)
        started_at = int(time.time())
        done = self._run(*argv)
        if done.returncode == 0:
            return
        told = self._run(*self.log_command(unit), "--output=cat", "--lines=20", f"--since=@{started_at}")
        self._run("systemctl", f"--{self.scope}", "stop", "--", unit.name)
        self._run("systemctl", f"--{self.scope}", "reset-failed", "--", unit.name)
        raise CliError(
            f"expected {unit.name} to come up, found that it failed",
            more=[line for line in (*done.stderr.splitlines(), *told.stdout.splitlines()) if line.strip()],
            hint="the broker says more in the foreground: lever broker serve",
            exit=Exit.UNEXPECTED,
        )

    def stop(self, unit: Unit) -> None:
        """Stop the unit; returns once it has ended."""
        done = self._run("systemctl", f"--{self.scope}", "stop", "--", unit.name)
        if done.returncode:
            raise CliError(
                f"expected {unit.name} to stop", more=done.stderr.splitlines(), exit=Exit.UNEXPECTED,
                hint=f"systemctl --{self.scope} status {unit.name}",
            )  # fmt: skip
        self._run("systemctl", f"--{self.scope}", "reset-failed", "--", unit.name)

    def log_command(self, unit: Unit) -> list[str]:
        """The journalctl command that shows what the unit logged."""
        return ["journalctl", *(["--user"] if self.scope is Scope.USER else []), "--no-pager", f"--unit={unit.name}"]

    def ends_with_the_session(self) -> str:
        """The user whose logout ends the unit; empty if none does."""
        import pwd

        user = pwd.getpwuid(os.getuid()).pw_name
        return user if self.scope is Scope.USER and not (_LINGERING / user).exists() else ""

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_LIMIT_S, check=False,
        )  # fmt: skip
