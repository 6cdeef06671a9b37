"""Forks `lever` for `tests/forked.py`: it imports the product once, and each process starts as a copy of it.

It knows no more of the tests than the job that it reads: what to run, words, folder, environment, and a user to be.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import socket
import sys
import termios
import threading
import time
from contextlib import suppress
from typing import Any

# Imported late by those who use them: too late for a process of another user, who may not read this Python's folder.
_LATE = ("encodings.idna", "encodings.utf_16_be")
_IMPORTED = ("lever", "broker", "_pytest")


def serve(control: socket.socket, listener: socket.socket) -> None:
    """Until the other end of `control` is gone. What is to be imported is with the first who asks for a process."""
    running: dict[int, tuple[int, socket.socket]] = {}  # pidfd: pid, and who asked for it
    began = False
    while True:
        waiting = select.poll()
        for fd in (control.fileno(), listener.fileno(), *running):
            waiting.register(fd, select.POLLIN)
        ready = [fd for fd, _ in waiting.poll()]
        if control.fileno() in ready:
            return
        for fd in running.keys() & ready:
            _ended(fd, *running.pop(fd))
        if listener.fileno() not in ready:
            continue
        if not began:
            _everything()
            gc.freeze()
            began = True
        reply, _ = listener.accept()
        _, stdio, _, _ = socket.recv_fds(reply, 1, 3)
        with reply.makefile() as lines:
            job = json.loads(lines.readline())
        if (pid := os.fork()) == 0:
            for line in (control, listener, reply, *(theirs for _, theirs in running.values())):
                line.close()
            for fd in running:
                os.close(fd)
            return _run(job, stdio)
        for fd in stdio:
            os.close(fd)
        running[os.pidfd_open(pid)] = pid, reply
        with suppress(OSError):
            reply.sendall(b"%d\n" % pid)


def _everything() -> None:
    """The product, what it would import late, and pytest for the copies of the tree: `tests/in_copy.py`."""
    for package in _IMPORTED:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)


def _ended(pidfd: int, pid: int, reply: socket.socket) -> None:
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError), reply:
        reply.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _run(job: dict[str, Any], stdio: list[int]) -> None:
    """What the installed script does, as the process that was asked for."""
    for standard, fd in enumerate(stdio):
        os.dup2(fd, standard)
        os.close(fd)
    os.setsid()
    if job["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if job["uid"] is not None:
        os.setgroups([])
        os.setgid(job["uid"])
        os.setuid(job["uid"])
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    time.tzset()
    sys.argv = job["argv"]
    try:
        status = importlib.import_module(job["module"]).main()
    except SystemExit as end:
        status = end.code
    _end(status)


def _end(status: object) -> None:
    """As an interpreter ends, but for taking its modules down, which takes longer than most commands.

    Only what cannot be written shows itself then, and an end that is told in words: those end as usual.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        for file in (sys.stdout, sys.stderr):
            file.flush()
        if status is None or isinstance(status, int):
            os._exit(status or 0)
    sys.exit(status)


if __name__ == "__main__":
    serve(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1:]))
