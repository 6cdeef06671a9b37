"""`lever broker` where no systemd is needed: what it prints, how it exits. The rest: tests/system/test_systemd.py."""

from __future__ import annotations

import json
import os
import plistlib
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.wire.names import Instance
from lever.supervised import supervised
from lever.unit import Unit
from tests.rig import LEVER

HEALTH = {
    "instance": "demo", "version": "1.2.3", "pid": 4711, "agent_door": "127.0.0.1:8443",
    "clock_behind": False, "records": 12, "directives": {"active": 3},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An instance as far as these commands look. Its socket's path is relative: macOS takes a hundred characters."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "lever.yaml").write_text("instance: demo\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lever(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """The installed lever, in this folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEVER_")}
    environment |= {"PATH": path} if path is not None else {}
    return subprocess.run([LEVER, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)


@contextmanager
def answering(path: str, body: object) -> Iterator[None]:
    """A broker on a socket that gives one answer."""
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(head.encode() + content)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            thread.join(30)


def test_status_shows_what_the_broker_says(folder: Path) -> None:
    with answering("state/operator.sock", HEALTH):
        done = lever("broker", "status")
    assert done.returncode == 0, done.stderr
    for words in ("demo", "1.2.3", "4711", "127.0.0.1:8443", "active directives  3", "state/operator.sock"):
        assert words in done.stdout


def test_status_says_that_the_clock_is_behind(folder: Path) -> None:
    with answering("state/operator.sock", HEALTH | {"clock_behind": True}):
        assert "behind the journal" in lever("broker", "status").stdout


def test_status_as_json(folder: Path) -> None:
    with answering("state/operator.sock", HEALTH):
        done = lever("broker", "status", "--json")
    assert json.loads(done.stdout) == {
        "socket": str(folder / "state" / "operator.sock"),
        "health": HEALTH,
        "unit": {"name": "lever-demo.service", "active": "inactive"},
    }


def test_status_of_a_socket_brought_from_elsewhere_needs_no_configuration(folder: Path) -> None:
    (folder / "lever.yaml").unlink()
    with answering("far.sock", HEALTH):
        done = lever("broker", "status", "--socket", "far.sock", "--json")
    assert json.loads(done.stdout)["health"] == HEALTH
    assert json.loads(done.stdout)["unit"] is None


@pytest.mark.parametrize("stale", [False, True])
def test_status_exits_4_when_nobody_answers(folder: Path, stale: bool) -> None:
    if stale:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind("state/operator.sock")
    done = lever("broker", "status", "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["health"] is None
    assert "hint:  lever broker serve" in done.stderr


def printed(*words: str) -> dict[str, Any]:
    done = lever("broker", "start", "--print", "--json", *words)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_start_prints_the_command_and_runs_nothing(folder: Path) -> None:
    told = printed("--system")
    argv = told["argv"]
    assert told["unit"] == "lever-demo.service"
    assert argv[:2] == ["systemd-run", "--system"]
    assert argv[-4:] == [LEVER, "broker", "serve", str(folder.resolve() / "lever.yaml")]
    assert f"--property=User={folder.owner()}" in argv
    words = lever("broker", "start", "--print", "--system").stdout
    assert shlex.split(words) == argv


@pytest.mark.parametrize(
    ("more", "property", "there"),
    [
        ("", "MemoryDenyWriteExecute=yes", True),
        ("agents: {worker-a: {deliver: [inbox]}}", "MemoryDenyWriteExecute=yes", True),
        ('agents: {worker-a: {deliver: [inbox, {command: ["tell", "{id}"]}]}}', "MemoryDenyWriteExecute=yes", False),
        ("listen: 127.0.0.1:443", "AmbientCapabilities=CAP_NET_BIND_SERVICE", True),
        ("listen: 127.0.0.2:8443", "IPAddressAllow=localhost", True),
        ('listen: "[::1]:8443"', "IPAddressAllow=localhost", True),
        ("listen: 192.0.2.1:8443", "IPAddressAllow=localhost", False),
        ("limits: {max_connections: 2000}", "LimitNOFILE=5024", True),
        ("operator: {allowed_signers: a, socket: /run/lever/demo.sock}", "RuntimeDirectory=lever", True),
    ],
)
def test_the_configuration_decides_on_the_unit(folder: Path, more: str, property: str, there: bool) -> None:
    (folder / "lever.yaml").write_text(f"instance: demo\n{more}\n")
    assert (f"--property={property}" in printed("--system")["argv"]) is there


def test_the_unit_can_read_what_runs_it_and_not_the_operators_key(folder: Path) -> None:
    (folder / "keys").mkdir()
    (folder / "lever.yaml").write_text("instance: demo\noperator: {allowed_signers: a, signing_key: keys/one}\n")
    argv = printed("--system")["argv"]
    bound = [
        Path(word.split("=", 2)[2].strip('"')) for word in argv if word.startswith("--property=BindReadOnlyPaths=")
    ]
    veiled = tuple(map(Path, ("/home", "/root", "/tmp", "/var/tmp", "/run/user")))
    for needed in (Path(LEVER), Path(__file__), folder / "lever.yaml"):
        hidden = any(needed.is_relative_to(place) for place in veiled)
        assert any(needed.is_relative_to(place) for place in bound) is hidden, needed
    assert f'--property=InaccessiblePaths="-{folder.resolve() / "keys"}"' in argv


def test_start_without_a_state_folder_says_what_makes_one(folder: Path) -> None:
    (folder / "state").rmdir()
    done = lever("broker", "start", "--print")
    assert done.returncode == 2
    assert "state" in done.stderr
    assert "lever init" in done.stderr


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "logs"])
def test_without_systemd_the_alternative_is_shown(folder: Path, verb: str) -> None:
    done = lever("broker", verb, path=str(folder))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "there is no systemd-run" in done.stderr
    assert f"hint:  lever broker serve {folder.resolve()}/lever.yaml" in done.stderr
    assert f"{LEVER} broker serve" in done.stderr


UNIT = Unit(Instance("demo"), Path("/srv/my broker/<&>/lever.yaml"))


def test_the_shell_loop_is_a_shell_loop() -> None:
    lines = supervised("linux", ["/opt/lever"], UNIT)
    (loop,) = (line for line in lines if "until " in line)
    assert shlex.split(loop)[:5] == ["until", "/opt/lever", "broker", "serve", f"{UNIT.config};"]
    subprocess.run(["sh", "-n"], input=loop, text=True, check=True)


def test_the_launchd_job_is_a_property_list() -> None:
    lines = supervised("darwin", ["/opt/lever"], UNIT)
    job = plistlib.loads("\n".join(line.strip() for line in lines[1:-1]).encode())
    assert job["ProgramArguments"] == ["/opt/lever", "broker", "serve", str(UNIT.config)]
    assert job["KeepAlive"] == {"SuccessfulExit": False}
    assert job["Label"] == "lever.demo"
