"""Agents forwarded by other SSH servers than OpenSSH's: told by the process that listens, or by the socket's name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lever.exits import Exit
from lever.forwarded import judged_by_place, why_forwarded
from tests.cli.conftest import Cli
from tests.rig import make_key

LISTEN = (
    "import socket, sys; line = socket.socket(socket.AF_UNIX); line.bind(sys.argv[1]); line.listen();"
    "print(flush=True); sys.stdin.read()"
)
IN_SESSION = {"SSH_CONNECTION": "a 1 b 2"}
OTHERS = ["dropbear", "dropbearmulti", "tailscaled", "teleport", "coder", "devpod"]
PLACES = {
    "dropbear": "/tmp/dropbear-0246dead/auth-d00f7654-23",
    "teleport": "/tmp/teleport-1234/teleport-4711.socket",
    "gliderlabs/ssh": "/tmp/auth-agent123456/listener.sock",
}
LOCAL = [
    "/run/user/1000/gnupg/S.gpg-agent.ssh",
    "/run/user/1000/keyring/ssh",
    "/run/user/1000/openssh_agent",
    "/tmp/ssh-XXabcdef12/agent.4711",
    "/home/a/.ssh/agent/s.Ab1.agent.Cd2",
    "/home/a/dropbear-0246dead/agent",
    "/home/a/auth-agent/listener.sock",
]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    yield made
    shutil.rmtree(made)


@contextmanager
def listening_as(name: str, path: Path) -> Iterator[int]:
    """A process of this name that listens on the socket; its id."""
    path.parent.mkdir(exist_ok=True)
    program = path.parent.parent / name
    program.symlink_to(sys.executable)
    argv = [str(program), "-c", LISTEN, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.communicate()


@pytest.mark.parametrize("name", OTHERS)
def test_another_servers_socket_is_a_forwarded_agents(short: Path, name: str) -> None:
    with listening_as(name, short / "run" / "agent") as pid:
        assert why_forwarded(short / "run" / "agent", {}) == f"{name} (process {pid}) listens on it"


def test_a_forwarded_agent_of_another_server_signs_nothing(cli: Cli, instance: Path, short: Path) -> None:
    key = make_key(cli.folder / "key")
    key.unlink()
    path = short / "run" / "agent"
    words = ("directive", "sign", "worker-a", "--generation", "1", "--instruction", "x", "--config", instance)
    with listening_as("dropbear", path) as pid:
        done = cli.process(*words, "--key", f"{key}.pub", env={"SSH_AUTH_SOCK": str(path)})
    assert (done.status, done.stdout) == (Exit.SIGNING_FAILED, "")
    assert f"refused to sign through a forwarded ssh-agent: dropbear (process {pid}) listens on it" in done.stderr
    assert "hint:  sign where the key is" in done.stderr


def test_a_server_of_any_name_is_told_by_its_sockets_name(short: Path) -> None:
    place = short / "auth-agent123456" / "listener.sock"
    with listening_as("my-server", place):
        assert why_forwarded(place, {}) == "its name is one that gliderlabs/ssh gives"
        link = short / "link"
        link.symlink_to(place)
        assert why_forwarded(link, {}) == "its name is one that gliderlabs/ssh gives"


@pytest.mark.parametrize("server", PLACES)
def test_a_name_that_only_a_server_gives_tells(server: str) -> None:
    told = judged_by_place(PLACES[server], is_gone=False, in_session=False)
    assert told == f"its name is one that {server} gives"


@pytest.mark.parametrize("place", LOCAL)
def test_a_local_agent_is_not_taken_for_a_forwarded_one(place: str) -> None:
    assert judged_by_place(place, is_gone=True, in_session=True) is None


@pytest.mark.parametrize("name", ["keyring", "ssh-agent", "gpg-agent", "dropbearkey", "sshd-agent"])
def test_a_local_agent_in_a_session_of_sshd_is_known_by_its_process(short: Path, name: str) -> None:
    path = short / "ssh-XXabcdef12" / "agent.4711"
    with listening_as(name, path):
        assert why_forwarded(path, IN_SESSION) is None
