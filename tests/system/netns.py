"""A host for tests of network namespaces: itself a namespace, so that the real host's firewall stays untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.machine import REPOSITORY, required

SCRIPT = REPOSITORY / "docs" / "operating" / "netns.sh"
NEEDED = ("ip", "nft", "unshare", "nsenter", "setpriv", "setsid")
DOOR = "10.203.0.1"
DOOR_PORT = 8443
AGENTS = {"agent-a": 1, "agent-b": 2}
DROPPED_S = 0.4
"""How long the answer to what is dropped is waited for. What is not dropped is answered within a millisecond."""

_HOLD = "mount -t tmpfs tmpfs /run && ip link set lo up && echo made && exec cat"
"""A /run of its own, for names in /run/netns. It holds until its input ends: at the latest when the test run does."""

_CONNECT = """
import socket, sys
host, port, source, wait_s, silent = sys.argv[1:]
family, kind, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
with socket.socket(family, kind) as made:
    made.settimeout(float(wait_s))
    if source:
        made.bind((source, 0))
    try:
        made.connect(address)
        print("connected" if silent else made.recv(100).decode())
    except OSError as error:
        print(type(error).__name__)
"""

_SEND = """
import socket, sys
host, port, source, word = sys.argv[1:]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    made.bind((source, 0))
    made.sendto(word.encode(), (host, int(port)))
"""

_SERVE = """
import socket, sys, threading
port = int(sys.argv[1])
listening = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("0.0.0.0", port))
def answer():
    while True:
        made, peer = listening.accept()
        with made:
            made.sendall(f"you are {peer[0].removeprefix('::ffff:')}".encode())
threading.Thread(target=answer, daemon=True).start()
print("serving", flush=True)
while True:
    print(datagrams.recv(100).decode(), flush=True)
"""


class Service:
    """A service on all addresses, not the broker: over TCP it names its caller, and datagrams are seen here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._line() == "serving"

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().rstrip("\n")

    def datagrams_before(self, last: str) -> list[str]:
        """What has arrived before this one."""
        found: list[str] = []
        while (line := self._line()) != last:
            assert line, "the service has ended"
            found.append(line)
        return found


class Host:
    """The host: its network and its names of namespaces. The files are the real machine's."""

    def __init__(self, holder: int) -> None:
        self._holder = holder
        self.network = ("nsenter", f"--net=/proc/{holder}/ns/net", "--")
        self._all = ("nsenter", f"--target={holder}", "--net", "--mount", "--")

    def run(self, *argv: str, expect: int | None = 0, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command on the host. expect: the exit status that it must have, None for any."""
        sees = {sys.prefix, sys.base_prefix, str(REPOSITORY)} - {"/usr", "/usr/local"}
        # A caller's PATH may lack what only root runs, nft among them.
        env = {
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "SEES": " ".join(sorted(sees)),
            "SSH_AUTH_SOCK": "/agent",
        }
        done = subprocess.run(
            [*self._all, *argv], env=env, input=input or "", capture_output=True, text=True, timeout=30, cwd="/"
        )
        told = f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert expect is None or done.returncode == expect, told
        return done

    def script(self, *words: str) -> None:
        """The script of the documents."""
        self.run("sh", str(SCRIPT), *words)

    def inside(self, name: str, *argv: str) -> str:
        """Run as root in an agent's network, with every capability over it: more than an agent ever has."""
        return self.run("ip", "netns", "exec", name, *argv).stdout.strip()

    def connect(self, name: str, address: str, port: int, source: str = "", wait_s: float = 10) -> str:
        """What came of a TCP connection from a namespace ("": from the host): a word of the other end, or the error."""
        silent = "silent" if port == DOOR_PORT else ""
        argv = (sys.executable, "-c", _CONNECT, address, str(port), source, str(wait_s), silent)
        return self.inside(name, *argv) if name else self.run(*argv).stdout.strip()

    def dropped(self, name: str, address: str, port: int, source: str = "") -> bool:
        """Is a TCP connection from a namespace met with silence?"""
        return self.connect(name, address, port, source, wait_s=DROPPED_S) == "TimeoutError"

    def send(self, name: str, address: str, port: int, source: str, word: str) -> None:
        """Send a datagram from a namespace ("": from the host), from this source address."""
        argv = (sys.executable, "-c", _SEND, address, str(port), source, word)
        self.inside(name, *argv) if name else self.run(*argv)

    def set(self, interface: str, **values: int) -> None:
        """The kernel's settings for an interface of the host."""
        for name, value in values.items():
            self.run("sh", "-c", f"echo {value} >/proc/sys/net/ipv4/conf/{interface}/{name}")

    def drops(self, chain: str) -> int:
        """How many packets a chain of the rules has dropped."""
        told = json.loads(self.run("nft", "--json", "list", "chain", "inet", "lever", chain).stdout)
        parts = [part for item in told["nftables"] for part in item.get("rule", {}).get("expr", [])]
        return sum(part["counter"]["packets"] for part in parts if "counter" in part)

    def drop_rules(self) -> None:
        """Take the rules away, and leave the namespaces."""
        self.run("nft", "delete", "table", "inet", "lever")

    @contextmanager
    def service(self, port: int, name: str = "") -> Iterator[Service]:
        """Serve on every address of the host, or of a namespace."""
        inside = ("ip", "netns", "exec", name) if name else ()
        argv = [*self._all, *inside, sys.executable, "-c", _SERVE, str(port)]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        with process:
            try:
                yield Service(process)
            finally:
                process.kill()


@contextmanager
def host() -> Iterator[Host]:
    """A host with the namespaces of two agents, set up by the script of the documents; the kernel takes it all down."""
    required(NEEDED, "iproute2, nftables, util-linux")
    argv = ["unshare", "--net", "--mount", "sh", "-c", _HOLD]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"made\n"
        made = Host(holder.pid)
        # Of two settings the kernel takes the larger, and a new network has the machine's own.
        made.set("all", rp_filter=0, forwarding=0)
        made.script("host")
        for name, number in AGENTS.items():
            made.script("add", name, str(number))
        yield made


def private_folder(path: Path, uid: int) -> Path:
    """A folder that is one user's alone."""
    path.mkdir(mode=0o700)
    os.chown(path, uid, uid)
    return path
