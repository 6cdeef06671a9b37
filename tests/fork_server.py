"""Forks `lever` for `tests/forked.py`: it imports the product once, and each process starts as a copy of it.

It knows no more of the tests than the job that it reads: words, folder, environment, and a user to be.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import socket
import sys
import time
from contextlib import suppress
from typing import Any

# Imported late by those who use them: too late for a process of another user, who may not read this Python's folder.
_LATE = ("encodings.idna", "encodings.utf_16_be")


def _everything() -> None:
    """Import the product, and what it would import late; but not the MCP SDK, which takes as long and few need."""
    for package in ("lever", "broker"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if "mcp" not in module.name:
                importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    _everything()
    gc.freeze()
    while True:
        word, fds, _, _ = socket.recv_fds(control, 1, 4)
        if not word:
            return
        if os.fork() == 0:
            control.close()
            return _look_after(*fds)
        for fd in fds:
            os.close(fd)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _look_after(reply_fd: int, *stdio: int) -> None:
    """Fork the process that was asked for; tell its id, and once it has ended how."""
    reply = socket.socket(fileno=reply_fd)
    with reply.makefile() as lines:
        job = json.loads(lines.readline())
    pid = os.fork()
    if pid == 0:
        reply.close()
        _run(job, stdio)
    for fd in stdio:
        os.close(fd)
    with suppress(OSError):
        reply.sendall(b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        reply.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(job: dict[str, Any], stdio: tuple[int, ...]) -> None:
    """What the installed script does, as the process that was asked for."""
    for standard, fd in enumerate(stdio):
        os.dup2(fd, standard)
        os.close(fd)
    os.setsid()
    if job["uid"] is not None:
        os.setgroups([])
        os.setgid(job["uid"])
        os.setuid(job["uid"])
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    time.tzset()
    sys.argv = job["argv"]
    sys.exit(importlib.import_module("lever.cli").main())


if __name__ == "__main__":
    main()
