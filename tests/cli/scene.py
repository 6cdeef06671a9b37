"""An instance and its operator at a shell: commands run as a user, with a home and a clock of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lever.exits import Exit
from tests.forked import forkable
from tests.rig import LEVER, Rig

_NOBODY_ID = 65534
_NOBODY = ("setpriv", f"--reuid={_NOBODY_ID}", f"--regid={_NOBODY_ID}", "--clear-groups")
_OTHER_CLOCK = """\
import os, time
_s = float(os.environ.get("CLOCK_AHEAD_S", "0"))
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _s
time.time_ns = lambda: _time_ns() + int(_s * 1e9)
"""


@dataclass
class Scene:
    """An instance, and its operator at a shell. prefix: what makes a command run as its user."""

    rig: Rig
    place: Path
    prefix: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def home(self) -> Path:
        return self.place / "home"

    @property
    def is_root(self) -> bool:
        return os.geteuid() == 0 and not self.prefix

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LEVER_", "SSH_"))}
        path = f"{Path(LEVER).parent}:{kept['PATH']}"
        clock = {"PYTHONPATH": str(self.place / "clock")} if "CLOCK_AHEAD_S" in self.env else {}
        return {**kept, "PATH": path, "HOME": str(self.home), **clock, **self.env}

    @property
    def uid(self) -> int | None:
        """Whom a forked command runs as."""
        return _NOBODY_ID if self.prefix else None

    def lever(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The installed command, in the instance's folder."""
        env = self.environment()
        if Rig.server and forkable(env):
            return Rig.server.run([LEVER, *words], cwd=self.rig.folder, env=env, uid=self.uid)
        return self.run([LEVER, *words])

    def run(self, argv: list[str], input: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.prefix, *argv], cwd=self.rig.folder, env=self.environment(), input=input,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def sh(self, hint: str) -> str:
        """Run the command of a hint: all of it up to the first semicolon. A passphrase is asked for: none."""
        done = self.run(["sh", "-c", hint.partition("; ")[0]], input="\n\n")
        assert done.returncode == 0, (hint, done.stderr)
        return done.stdout

    def doctor(self, config: Path | None = None) -> list[dict[str, str]]:
        """What doctor finds that is not as it should be."""
        done = self.lever("doctor", str(config or self.rig.config), "--json")
        told = json.loads(done.stdout)
        found: list[dict[str, str]] = [check for check in told["checks"] if check["level"] != "ok"]
        failed = any(check["level"] == "fail" for check in found)
        assert done.returncode == (Exit.VERIFICATION_FAILED if failed else 0), done.stderr
        return found

    def start(self, *extra: str) -> None:
        env = self.environment()
        self.rig.start(*extra, wrapper=() if Rig.server and forkable(env) else self.prefix, env=env, uid=self.uid)

    def edit(self, path: Path, old: str, new: str) -> None:
        """By hand, in a file."""
        changed = re.sub(old, new, path.read_text(), count=1, flags=re.MULTILINE)
        assert changed != path.read_text()
        path.write_text(changed)


def runs_as_nobody() -> bool:
    """Whether there is somebody else to be: root reads what has mode 000, and is nobody's usual operator."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return False
    probe = [*_NOBODY, sys.executable, "-c", "import broker.daemon, lever.checks"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def new_scene(*, as_nobody: bool) -> Scene:
    place = Path(tempfile.mkdtemp(prefix="lever-", dir="/tmp"))
    place.chmod(0o755)
    (place / "home" / ".ssh").mkdir(mode=0o700, parents=True)
    (place / "clock").mkdir()
    (place / "clock" / "sitecustomize.py").write_text(_OTHER_CLOCK)
    rig = Rig.create(place / "demo")
    if as_nobody:
        subprocess.run(["chown", "-R", "65534:65534", str(place)], check=True)
    return Scene(rig, place, _NOBODY if as_nobody else ())


def end(scene: Scene) -> None:
    scene.stack.close()
    scene.rig.close()
    shutil.rmtree(scene.place)
