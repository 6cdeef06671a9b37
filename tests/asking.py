"""Asks the fork server for a process; as a program, it passes for one: for who starts a program by its name.

It has this process's words, folder, environment and descriptors, and ends as that one does. It imports little, because
it starts often.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any


def ask(path: str, argv: list[str], stdio: list[int], **job: Any) -> socket.socket:
    """The line on which the server tells the process's id, and later how it ended. path: where the server listens."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    socket.send_fds(line, [b"\n"], stdio)
    usual = {"module": "lever.cli", "uid": None, "terminal": False}
    line.sendall(json.dumps({**usual, "argv": argv, **job}).encode() + b"\n")
    return line


def main() -> None:
    path, *argv = sys.argv[1:]
    with ask(path, argv, [0, 1, 2], cwd=os.getcwd(), env=dict(os.environ)).makefile() as told:  # noqa: PTH109
        _, status = told
    if int(status) < 0:
        os.kill(os.getpid(), -int(status))
    sys.exit(int(status))


if __name__ == "__main__":
    main()
