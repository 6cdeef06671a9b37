"""Is the ssh-agent behind a socket on another machine? A forwarded agent signs whatever this host asks of it."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_FORWARDERS = frozenset(
    ("sshd", "sshd-session", "ssh", "dropbear", "dropbearmulti", "tailscaled", "teleport", "coder", "devpod")
)
"""What listens on a forwarded agent's socket, as the kernel names it: 15 characters at most."""
_NAMES = {
    # In ~/.ssh/agent, from OpenSSH 10.1 on; ssh-agent has `agent` in the same place.
    "sshd": re.compile(r".*/s\.[A-Za-z0-9]+\.sshd\.[A-Za-z0-9]+"),
    "dropbear": re.compile(r".*/dropbear-[0-9a-f]{8}/auth-[0-9a-f]{8}-[0-9]+"),
    "teleport": re.compile(r".*/teleport-[0-9]+\.socket"),
    # The library beneath tailscaled, coder, devpod and many a small server, whatever their process is called.
    "gliderlabs/ssh": re.compile(r".*/auth-agent[0-9]+/listener\.sock"),
}
"""How those name their sockets that give names of their own, by who does: a local agent has none of these."""
_PLACE_OF_OLD = re.compile(r".*/ssh-[A-Za-z0-9]+/agent\.[0-9]+")
"""How both sshd and ssh-agent name theirs before that."""
_SOL_LOCAL, _LOCAL_PEERPID = 0, 2
_TIMEOUT_S = 5.0


class NoAgent(Exception):
    """Nothing answers on the socket."""


def why_forwarded(path: Path, environment: Mapping[str, str]) -> str | None:
    """Why this agent socket is taken for a forwarded one; None when nothing says so. Raises NoAgent.

    What is looked at: the process that listens on the socket (sshd or another SSH server for a forwarded agent, ssh for
    a socket brought over by `ssh -L`), the socket's name, and where the process can't be told, whether this is a
    session of sshd.

    What this can't see: a relay of another kind (socat, a socket mounted into a container), an agent that itself asks
    another machine, and a host whose root wants to deceive. It guards against a habit, not against the host:
    a key that must withstand its host belongs on another machine, or asks for a touch.
    """
    pid = _listener(path)
    name = _process_name(pid) if pid else None
    if name in _FORWARDERS:
        return f"{name} (process {pid}) listens on it"
    is_gone = pid is not None and not _alive(pid)
    # Where the process has another name, that the socket might be one of sshd's by its place says nothing.
    in_session = name is None and "SSH_CONNECTION" in environment
    return judged_by_place(str(path.resolve()), is_gone=is_gone, in_session=in_session)


def judged_by_place(place: str, *, is_gone: bool, in_session: bool) -> str | None:
    """As `why_forwarded`, where the name of the listening process says nothing.

    is_gone: the process is known to have ended; in_session: this is a session of sshd.
    """
    for forwarder, its_names in _NAMES.items():
        if its_names.fullmatch(place):
            return f"its name is one that {forwarder} gives"
    # ssh-agent listens and then forks, so its listener is often gone; that of sshd lives as long as the session.
    if in_session and not is_gone and _PLACE_OF_OLD.fullmatch(place):
        return "this is a session of sshd, and the socket stands where sshd puts it"
    return None


def _listener(path: Path) -> int | None:
    """The process that called listen() on the socket, as far as the kernel tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(_TIMEOUT_S)
        try:
            line.connect(os.fspath(path))
            if sys.platform == "darwin":
                found = struct.unpack("i", line.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4))[0]
            else:
                found = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        except OSError as error:
            raise NoAgent(error.strerror or "no answer") from error
    return int(found) or None


def _process_name(pid: int) -> str | None:
    """What a process calls itself; None when there is none, or its name is hidden from us."""
    if sys.platform != "darwin":
        try:
            return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
        except OSError:
            return None
    argv = ["/bin/ps", "-o", "comm=", "-p", str(pid)]
    try:
        said = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return Path(said).name.partition(":")[0] or None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
