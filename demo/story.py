"""What tells the story: each step is shown, run, and held to its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

LEVER = str(Path(sys.executable).with_name("lever"))
WIDTH = 80
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class NotAsToldError(Exception):
    """A step did not end the way the story says."""


def paint(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def chapter(title: str) -> None:
    print(f"\n{paint('1', title)}")


def say(text: str) -> None:
    """A line of the story, wrapped; what a program printed stays in its own order."""
    print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))


def say_command(text: str) -> None:
    lines = textwrap.wrap(
        f"$ {text}",
        WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_on_hyphens=False,
        drop_whitespace=False,
    )
    for line in lines:
        print(paint("36", line))


class Story:
    """A folder with one instance in it, and the daemon that serves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemon: subprocess.Popen[str] | None = None
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("LEVER_", "SSH_"))}

    def lever(
        self, *words: str, expect: int = 0, quiet: bool = False, at: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `lever WORDS`, show it, and insist on its exit status. at: where, if not in the instance's folder."""
        shown = " ".join(word if word and " " not in word and "{" not in word else f"'{word}'" for word in words)
        if not quiet:
            say_command(f"lever {shown}")
        done = subprocess.run(
            [LEVER, *words],
            cwd=at or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode != expect:
            raise NotAsToldError(
                f"lever {shown}\nexpected exit status {expect}, got {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def data(self, *words: str) -> dict[str, object]:
        """Run a command with --json and read what it printed."""
        value = json.loads(self.lever(*words, "--json").stdout)
        assert isinstance(value, dict)
        return value

    def start(self) -> None:
        """Start the daemon and wait for its one line."""
        say_command("lever broker serve &")
        self.daemon = subprocess.Popen(
            [LEVER, "broker", "serve"], cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True
        )
        assert self.daemon.stderr
        for line in self.daemon.stderr:
            if "serving" in line:
                return say(line.strip())
        raise NotAsToldError(f"the daemon did not start (exit status {self.daemon.wait()})")

    def kill(self) -> None:
        """kill -9: no goodbye."""
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGKILL)
            self.daemon.wait()
        if self.daemon and self.daemon.stderr:
            self.daemon.stderr.close()

    def miss(self, why: str, id: str, identity: str) -> str:
        """A consume that must miss; what the agent sees of it."""
        done = self.lever("agent", "consume", id, "--identity", identity, expect=3, quiet=True)
        seen = done.stderr.strip().splitlines()[0]
        print(f"  {why:<44} {seen}")
        return done.stdout + done.stderr


def print_lines(done: subprocess.CompletedProcess[str]) -> None:
    for line in (done.stdout + done.stderr).splitlines():
        say(line)
