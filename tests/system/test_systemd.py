"""`lever broker start` and its siblings against a real systemd: PID 1 of a throw-away machine, booted for each test."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import LEVER
from tests.system.machine import Machine, booted, required

pytestmark = pytest.mark.root

UNIT = "lever-demo.service"
FOLDER = "/srv/demo"
MADE = "/srv/made"
EXPOSURE = {"root": 1.5, "op": 1.1, "root, with commands": 2.1}
"""What `systemd-analyze security` may say at most: 0 is least exposed, 10 most, 9.6 a unit without any of it."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance to copy: `lever init` takes longer than booting the machine."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    subprocess.run([LEVER, "init", str(folder), "--name", "demo", "--make-keys"], check=True, capture_output=True)
    return folder


@pytest.fixture
def machine(tmp_path: Path, made: Path) -> Iterator[Machine]:
    required()
    with booted(tmp_path, f"--bind-ro={made}:{MADE}") as booted_machine:
        yield booted_machine


class Instance:
    """An instance in the machine, seen through its own `lever` and its unit."""

    def __init__(
        self, machine: Machine, folder: str = FOLDER, user: str = "", env: dict[str, str] | None = None
    ) -> None:
        self.machine, self.folder, self._user, self._env = machine, folder, user, env
        machine.run("cp", "--archive", "--no-target-directory", MADE, folder)
        machine.run("chown", "--recursive", f"{user or 'root'}:", folder)

    def lever(self, *words: str, expect: int | None = 0) -> tuple[str, str]:
        """Standard output and standard error."""
        done = self.machine.run(LEVER, *words, expect=expect, user=self._user, env=self._env)
        return done.stdout, done.stderr

    def broker(self, verb: str, *words: str, expect: int | None = 0) -> tuple[str, str]:
        return self.lever("broker", verb, *words, f"{self.folder}/lever.yaml", expect=expect)

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.broker("status", "--json")[0])
        return told

    def properties(self, *names: str) -> dict[str, str]:
        """Properties of the unit, by systemd's word."""
        scope = "--user" if self._user else "--system"
        argv = ("systemctl", scope, "show", f"--property={','.join(names)}", UNIT)
        lines = self.machine.run(*argv, user=self._user, env=self._env).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines)

    def unit(self, name: str) -> str:
        return self.properties(name)[name]

    def kill(self, signal: str) -> None:
        """Signal the daemon, and wait until systemd has another one ready in its place."""
        was = self.unit("MainPID")
        assert was != "0", f"it does not run\n{self.machine.journal()}"
        self.machine.run("kill", f"-{signal}", was)

        def back() -> bool:
            now = self.properties("ActiveState", "MainPID")
            return now["ActiveState"] == "active" and now["MainPID"] != was

        self.machine.until(back, f"a new broker after SIG{signal}")

    def add(self, *lines: str) -> None:
        """More configuration."""
        self.machine.run("sh", "-c", 'printf "%s\\n" "$@" >>"$0"', f"{self.folder}/lever.yaml", *lines)


def test_it_starts_ready_comes_back_after_sigkill_and_stops(machine: Machine) -> None:
    demo = Instance(machine)
    machine.run("rm", "-r", FOLDER)
    demo.lever("init", FOLDER, "--name", "demo", "--make-keys")
    demo.broker("start")
    told = demo.status()
    first = told["health"]["pid"]
    assert told["unit"] == {
        "name": UNIT, "scope": "system", "active": "active", "sub": "running",
        "pid": first, "restarts": 0, "result": "success", "installed": False,
    }  # fmt: skip
    assert "serving" in demo.unit("StatusText")
    assert "runs already" in demo.broker("start")[1]
    demo.kill("KILL")
    told = demo.status()
    assert told["unit"]["restarts"] == 1
    assert told["health"]["pid"] not in (None, first)
    demo.broker("restart")
    assert demo.unit("NRestarts") == "0", "a new unit"
    demo.broker("stop")
    assert demo.unit("ActiveState") == "inactive"
    demo.broker("status", expect=4)
    assert "did not run" in demo.broker("stop")[1]
    logged = demo.broker("logs")[0]
    assert "serving" in logged
    assert "Deactivated successfully" in logged, "SIGTERM is a clean end"
    assert all(json.loads(line) for line in demo.broker("logs", "--json")[0].splitlines())


def test_a_broker_that_hangs_is_ended_by_the_watchdog_and_started_again(machine: Machine) -> None:
    demo = Instance(machine)
    folder = f"/etc/systemd/system/{UNIT}.d"
    machine.run("mkdir", folder)
    machine.run("sh", "-c", f"printf '[Service]\\nWatchdogSec=4\\n' >{folder}/soon.conf")
    demo.broker("start")
    assert demo.unit("WatchdogUSec") == "4s", "a drop-in changes the transient unit"
    beat = demo.unit("WatchdogTimestampMonotonic")
    machine.until(lambda: demo.unit("WatchdogTimestampMonotonic") != beat, "another beat")
    assert demo.unit("NRestarts") == "0"
    demo.kill("STOP")
    assert "Watchdog timeout" in machine.journal()


@pytest.mark.parametrize("owner", ["root", "op"])
def test_the_broker_is_shut_in(machine: Machine, owner: str) -> None:
    machine.run("useradd", "--create-home", "op")
    demo = Instance(machine)
    machine.run("chown", "-R", f"{owner}:", FOLDER)
    demo.broker("start")
    pid = demo.unit("MainPID")
    assert machine.run("stat", "--format=%U", f"/proc/{pid}").stdout.strip() == owner, "the state folder's owner"
    limits = dict(line.split(":\t") for line in machine.run("cat", f"/proc/{pid}/status").stdout.splitlines())
    assert (limits["CapBnd"], limits["NoNewPrivs"], limits["Seccomp"]) == ("0" * 16, "1", "2")
    inside = ("nsenter", "--target", pid, "--mount", "--")
    for place in ("/etc/x", f"{FOLDER}/x", "/usr/x"):
        assert "Read-only" in machine.run(*inside, "touch", place, expect=1).stderr
    assert machine.run("ls", f"{FOLDER}/keys").stdout, "the operator's keys are there"
    assert machine.run(*inside, "ls", f"{FOLDER}/keys").stdout == "", "and the broker can't see them"
    assert machine.run("ls", "/home").stdout
    assert machine.run(*inside, "ls", "/home").stdout == ""
    assert exposure(machine) <= EXPOSURE[owner]


@pytest.mark.parametrize("folder", [FOLDER, "/root/100% de mo"])
def test_a_daemon_reload_takes_nothing_from_the_unit(machine: Machine, folder: str) -> None:
    """systemd reads the transient unit anew from what it wrote down itself, at any package's installation."""
    demo = Instance(machine, folder)
    demo.broker("start")
    before = exposure(machine)
    machine.run("systemctl", "daemon-reload")
    assert exposure(machine) == before
    demo.kill("KILL")
    assert demo.status()["unit"]["restarts"] == 1


def test_a_delivery_command_reaches_what_it_needs(machine: Machine) -> None:
    """What tmux needs: a socket in the shared /tmp. What a program with a just-in-time compiler needs: such memory."""
    script = (
        "import mmap, socket, sys;"
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC);"
        "pane = socket.socket(socket.AF_UNIX); pane.connect('/tmp/pane'); pane.sendall(sys.argv[1].encode())"
    )
    demo = Instance(machine)
    command = json.dumps([sys.executable, "-c", script, "{id}"])
    demo.add("agents:", "  worker-a:", f"    deliver: [{{command: {command}}}]")
    machine.run("systemd-run", "--unit=pane", "--socket-property=ListenStream=/tmp/pane", "sleep", "infinity")
    demo.broker("start")
    assert exposure(machine) <= EXPOSURE["root, with commands"]
    config = f"{FOLDER}/lever.yaml"
    demo.lever("agent", "invite", "worker-a", "--out", "/srv/bundle.json", config)
    demo.lever("agent", "enrol", "--bundle", "/srv/bundle.json", "--identity", "/srv/worker-a")
    sent, _ = demo.lever("directive", "send", "worker-a", "--instruction", "Hello.", "--json", "--yes", config)
    assert json.loads(sent)["delivered"] is True


def test_what_can_not_start_says_why_and_leaves_nothing(machine: Machine) -> None:
    demo = Instance(machine)
    machine.run("mv", f"{FOLDER}/state/journal", "/srv/journal")
    _, told = demo.broker("start", expect=1)
    assert "journal" in told
    assert demo.unit("LoadState") == "not-found"
    machine.run("mv", "/srv/journal", f"{FOLDER}/state/journal")
    demo.broker("start")


def test_another_instance_of_the_same_name_is_left_alone(machine: Machine) -> None:
    demo, other = Instance(machine), Instance(machine, "/srv/other")
    demo.broker("start")
    for verb in ("start", "stop"):
        _, told = other.broker(verb, expect=3)
        assert f"{FOLDER}/lever.yaml" in told
    assert demo.status()["unit"]["active"] == "active"


def test_a_socket_below_run(machine: Machine) -> None:
    demo = Instance(machine)
    machine.run("sed", "-i", "s|^operator:|&\\n  socket: /run/lever/demo.sock|", f"{FOLDER}/lever.yaml")
    demo.broker("start")
    assert machine.run("stat", "--format=%a %U", "/run/lever", "/run/lever/demo.sock").stdout == "700 root\n600 root\n"
    assert demo.status()["health"]


def test_the_unit_can_be_kept_as_a_file(machine: Machine) -> None:
    demo = Instance(machine)
    demo.broker("start")
    machine.run("sh", "-c", f"systemctl cat {UNIT} >/etc/systemd/system/{UNIT}")
    demo.broker("stop")
    machine.run("systemctl", "daemon-reload")
    demo.broker("start")
    assert demo.status()["unit"]["installed"] is True
    assert exposure(machine) <= EXPOSURE["root"]
    demo.broker("stop")
    assert demo.unit("ActiveState") == "inactive"
    assert "did not run" in demo.broker("stop")[1]


def test_a_user_runs_it_under_a_manager_of_his_own(machine: Machine) -> None:
    demo = Instance(machine, "/home/op/demo", "op", as_user(machine, "op"))
    _, told = demo.broker("start")
    assert "loginctl enable-linger op" in told
    unit = demo.status()["unit"]
    assert (unit["scope"], unit["active"]) == ("user", "active")
    limits = machine.run("cat", f"/proc/{unit['pid']}/status").stdout
    assert re.search(r"^NoNewPrivs:\t1$", limits, re.MULTILINE)
    assert re.search(r"^Seccomp:\t2$", limits, re.MULTILINE)
    demo.kill("KILL")
    demo.broker("stop")
    demo.broker("status", expect=4)


def test_a_user_without_a_service_manager_is_told_so(machine: Machine) -> None:
    machine.run("useradd", "--create-home", "op")
    machine.run("chmod", "a+x", "/root")
    demo = Instance(machine, "/home/op/demo", "op", {"HOME": "/home/op"})
    _, told = demo.broker("start", expect=1)
    assert "no service manager runs for this user" in told


def exposure(machine: Machine) -> float:
    """The verdict of systemd-analyze on the running unit."""
    verdict = machine.run("systemd-analyze", "security", "--no-pager", UNIT, expect=None).stdout
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", verdict)
    assert found, verdict
    return float(found[1])


def as_user(machine: Machine, name: str) -> dict[str, str]:
    """Make a user with a service manager, without needing PAM or logind; the environment of a login."""
    machine.run("useradd", "--create-home", name)
    machine.run("chmod", "a+x", "/root")  # the interpreter may be below it
    uid = machine.run("id", "--user", name).stdout.strip()
    drop_in = "/etc/systemd/system/user@.service.d"
    machine.run("mkdir", "-p", drop_in)
    lines = r"[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/%%i\n"
    machine.run("sh", "-c", f"printf '{lines}' >{drop_in}/plain.conf")
    lines = r"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=install -d -m 700 -o %%i /run/user/%%i\n"
    machine.run("sh", "-c", f"printf '{lines}' >/etc/systemd/system/user-runtime-dir@.service")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", f"user@{uid}.service")
    return {"HOME": f"/home/{name}", "XDG_RUNTIME_DIR": f"/run/user/{uid}"}


FAKE = Path(__file__).parents[1] / "fakes" / "tool_server.py"


def test_a_confined_tool_server_runs_below_the_unit(machine: Machine) -> None:
    demo = Instance(machine)
    reads = f"[{sys.prefix}, {sys.base_prefix}, {FAKE.parent}]"
    demo.add("servers:", f'  s: {{command: ["{sys.executable}", "-S", "{FAKE}"], sandbox: {{read: {reads}}}}}')
    demo.broker("start")
    argv = (LEVER, "tools", "list", "s", "--json", "--config", f"{FOLDER}/lever.yaml")
    told = machine.run(*argv, expect=None)
    assert "s.echo" in told.stdout, machine.journal()
    rated = machine.run("systemd-analyze", "security", "--no-pager", UNIT, expect=None).stdout.strip().splitlines()[-1]
    assert float(re.findall(r"[0-9.]+", rated)[-1]) <= 4.0, rated
