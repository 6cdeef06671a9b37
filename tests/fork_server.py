"""Forks `lever` for `tests/forked.py`: it imports the product once, and each process starts as a copy of it.

It knows no more of the tests than the job that it reads: what to run, words, folder, environment, and a user to be.
"""

from __future__ import annotations

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
import time
from contextlib import suppress
from typing import Any

# Imported late by those who use them: too late for a process of another user, who may not read this Python's folder.
_LATE = ("encodings.idna", "encodings.utf_16_be")
_IMPORTED = ("lever", "broker", "_pytest")


def serve(control: socket.socket, listener: socket.socket) -> None:
    """Until the other end of `control` is gone. What is to be imported is with the first who asks for a process."""
    waiting = select.poll()
    for each in (control, listener):
        waiting.register(each, select.POLLIN)
    began = False
    while control.fileno() not in dict(waiting.poll()):
        if not began:
            _everything()
            gc.freeze()
            began = True
        reply, _ = listener.accept()
        if os.fork() == 0:
            control.close()
            listener.close()
            return _look_after(reply)
        reply.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _everything() -> None:
    """The product, what it would import late, and pytest for the copies of the tree: `tests/in_copy.py`."""
    for package in _IMPORTED:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)


def _look_after(reply: socket.socket) -> None:
    """Fork the process that was asked for; tell its id, and once it has ended how."""
    _, stdio, _, _ = socket.recv_fds(reply, 1, 3)
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
    sys.exit(importlib.import_module(job["module"]).main())


if __name__ == "__main__":
    serve(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1:]))
