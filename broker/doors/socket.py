"""The sockets that the doors listen on: the operator's private one, the agents' public one."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from pathlib import Path

from broker.errors import Fatal

_MAX_PATH_BYTES = 107 if sys.platform == "linux" else 103
_LOOK = "mkdir -m 700 -p ~/.lever; then set in lever.yaml, in the operator block: socket: ~/.lever/NAME.sock"


def bind_operator_socket(path: Path) -> socket.socket:
    """A listening unix socket at this path, 0600 from its first instant.

    Its folder must be 0700 and ours. A socket that nobody answers on is replaced; one that somebody does, or anything
    that is no socket, is left alone. Raises Fatal.
    """
    _check_length(path)
    _check_folder(path.parent)
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind_private(listener, path)
        listener.listen()
    except OSError as error:
        listener.close()
        raise Fatal(f"cannot bind the operator socket {path}: {error.strerror}", hint=_LOOK) from error
    return listener


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a connected unix socket, as the kernel noted it at connect. Raises OSError."""
    if sys.platform == "linux":
        credentials = struct.Struct("iII")  # struct ucred: pid, uid, gid
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
        return int(credentials.unpack(raw)[1])
    credentials = struct.Struct("IIh16I")  # struct xucred of macOS and the BSDs: version, uid, group count, groups
    sol_local, local_peercred = 0, 1
    raw = connection.getsockopt(sol_local, local_peercred, credentials.size)
    return int(credentials.unpack(raw)[1])


def bind_tcp(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to every address of this name; with port 0, to the first address only. Raises Fatal."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Fatal(f"cannot listen on {host}:{port}: {error.strerror}", hint="see `listen` in lever.yaml") from error
    bound: list[socket.socket] = []
    for family, kind, protocol, _name, address in dict.fromkeys(found[:1] if port == 0 else found):
        listener = socket.socket(family, kind, protocol)
        bound.append(listener)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
        except OSError as error:
            for each in bound:
                each.close()
            taken = "another broker? lever broker status; else " if error.errno == errno.EADDRINUSE else ""
            raise Fatal(
                f"cannot listen on {host}:{port}: {error.strerror}", hint=f"{taken}see `listen` in lever.yaml"
            ) from error
    return bound


def _bind_private(listener: socket.socket, path: Path) -> None:
    """Bind under a umask, so that the file is made with mode 0600 and never had another.

    The umask belongs to the whole process: this runs at start-up, before there are threads. A change of mode after
    bind would leave a moment; a detour over a temporary name would leave that name in the kernel's socket tables.
    """
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    finally:
        os.umask(before)


def _check_length(path: Path) -> None:
    length = len(os.fsencode(path))
    if length > _MAX_PATH_BYTES:
        raise Fatal(
            f"the operator socket's path has {length} bytes, the system takes {_MAX_PATH_BYTES}: {path}", hint=_LOOK
        )


def _check_folder(folder: Path) -> None:
    """Private and ours: the socket's own mode is not all that keeps others away. Raises Fatal."""
    try:
        found = folder.stat()
    except OSError as error:
        raise Fatal(
            f"the operator socket's folder {folder}: {error.strerror}", hint=f"mkdir -m 700 {folder}"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise Fatal(f"the operator socket's folder {folder} is not a folder", hint=_LOOK)
    if found.st_uid != os.geteuid():
        raise Fatal(
            f"the operator socket's folder {folder} belongs to uid {found.st_uid}, expected {os.geteuid()}", hint=_LOOK
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise Fatal(
            f"the operator socket's folder {folder} has mode {stat.S_IMODE(found.st_mode):04o}, expected 0700",
            hint=f"chmod 700 {folder}",
        )


def _remove_stale(path: Path) -> None:
    """Make way if what is there is a socket that nobody listens on. Raises Fatal for anything else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise Fatal(f"{path} is in the operator socket's way and is not a socket; it was left alone", hint=_LOOK)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:  # a full backlog (EAGAIN), or not ours to reach: somebody's, in any case
            why = error.strerror
        else:
            why = "it answers"
    raise Fatal(f"another process listens on the operator socket {path} ({why})", hint=f"stop it first, or {_LOOK}")
