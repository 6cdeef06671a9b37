"""A real systemd for tests: booted in a namespace of its own, gone without a trace at the end."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
BOOT_LIMIT_S = 40.0
COMMAND_LIMIT_S = 60.0
NEEDED = ("systemd-nspawn", "systemd-run", "unshare", "nsenter", "setpriv")
PACKAGES = "systemd, systemd-container, util-linux"


def required(needed: tuple[str, ...] = NEEDED, packages: str = PACKAGES) -> None:
    """Skip with the reason where no namespaces can be made or a program is missing; in CI that is a failure."""
    missing = [name for name in needed if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    reason = "needs Linux" if sys.platform != "linux" else "needs root" if os.geteuid() else ""
    if not reason and missing:
        reason = f"needs {', '.join(missing)} (Debian: {packages})"
    if not reason and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        reason = "needs to make mount namespaces"
    if reason and os.environ.get("CI"):
        pytest.fail(f"{reason}, and in CI this test is never skipped")
    if reason:
        pytest.skip(reason)


class Machine:
    """The booted machine. Everything here runs inside it."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def run(
        self, *argv: str, expect: int | None = 0, user: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root, or as this user. expect: the exit status it must have, None for any."""
        inside = ["nsenter", "-t", str(self._leader), "-a"]
        inside += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        done = subprocess.run(
            [*inside, *argv],
            cwd="/",
            # A caller's PATH may lack what only root runs, useradd among them.
            env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "LANG": "C.UTF-8", **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            start_new_session=True,
        )
        told = f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert expect is None or done.returncode == expect, told
        return done

    def until(self, reached: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
        """Ask again until it is so: for what systemd has no call to wait on."""
        deadline = time.monotonic() + limit_s
        while not reached():
            assert time.monotonic() < deadline, f"not within {limit_s} s: {what}\n{self.journal()}"

    def journal(self) -> str:
        """What the machine's services logged last."""
        return self.run("journalctl", "--no-pager", "--lines=60", expect=None).stdout


@contextmanager
def booted(folder: Path, *options: str) -> Iterator[Machine]:
    """Boot in an empty folder. The interpreter and this repository are there read-only; options: systemd-nspawn's."""
    name = f"lever-test-{uuid.uuid4().hex[:12]}"
    log = folder / "nspawn.log"
    root = folder / "machine"
    root.mkdir()
    cgroups = [place / name for place in _hierarchies()]
    for cgroup in cgroups:
        cgroup.mkdir()
    try:
        with _Boot(name, root, cgroups, log, (*_binds(), *options)) as boot:
            yield Machine(boot.leader())
    finally:
        for cgroup in cgroups:
            _remove(cgroup)


class _Boot:
    """The processes: setpriv and unshare (one process), then the shell that is PID 1 of the namespace, then nspawn."""

    def __init__(self, name: str, root: Path, cgroups: list[Path], log: Path, options: tuple[str, ...]) -> None:
        self._log = log
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._notices.bind(f"\0{name}")
        # --pdeathsig and --kill-child: should the test run be killed, all of it ends too.
        argv = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv += ["sh", str(HERE / "nspawn.sh"), name, str(root), " ".join(map(str, cgroups)), *options]
        env = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "NOTIFY_SOCKET": f"@{name}"}
        with log.open("wb") as out:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)

    def __enter__(self) -> _Boot:
        return self

    def leader(self) -> int:
        """The pid of the machine's systemd, once it has booted."""
        ended = os.pidfd_open(self._process.pid)
        try:
            ready = False
            while not ready:
                told, _, _ = select.select([self._notices.fileno(), ended], [], [], BOOT_LIMIT_S)
                assert told == [self._notices.fileno()], f"no boot:\n{self._log.read_text(errors='replace')}"
                ready = b"READY=1" in self._notices.recv(4096).split(b"\n")
        finally:
            os.close(ended)
        # Whoever goes on sending must find nobody here: a queue that nobody reads would halt the machine's systemd.
        self._notices.close()
        pid = self._process.pid
        for _ in ("shell", "systemd-nspawn", "systemd"):
            (pid,) = _children(pid)
        return pid

    def __exit__(self, *_: object) -> None:
        # The shell is PID 1 of the namespace: with it the kernel ends all the others, and only then unshare returns.
        if self._process.poll() is None:
            for shell in _children(self._process.pid) or [self._process.pid]:
                os.kill(shell, signal.SIGKILL)
        self._process.wait()
        self._notices.close()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _hierarchies() -> list[Path]:
    """This process's cgroup folders that a systemd would manage: version 2's, and version 1's own if there is one."""
    mine = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        kind, _, super_options = after.split(" ", 2)
        name = "" if kind == "cgroup2" else "name=systemd" if "name=systemd" in super_options.split(",") else None
        if name in mine:
            _, _, _, top, mounted, *_ = before.split(" ")
            found.append(Path(mounted) / Path(mine[name]).relative_to(top))
    return found


def _remove(cgroup: Path) -> None:
    for folder, _, _ in os.walk(cgroup, topdown=False):
        Path(folder).rmdir()


def _binds() -> Iterator[str]:
    """The machine has a /tmp of its own, and its overlay holds no other file systems: bring over what is needed."""
    for place in sorted({sys.prefix, sys.base_prefix, str(REPOSITORY)} - {"/usr", "/usr/local"}):
        yield f"--bind-ro={place}"
