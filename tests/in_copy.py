"""Runs pytest in a changed copy of the tree, from the fork server: what is not of the tree needs no import any more."""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from tests.forked import LISTENS_AT

_OF_THE_TREE = ("broker", "lever", "tests")


def main() -> int:
    """In the copy's folder, with the words of pytest. Its own processes come from a server that is a fork too."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _OF_THE_TREE]:
        del sys.modules[name]
    sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()
    folder = tempfile.mkdtemp(prefix="fork-")
    os.environ[LISTENS_AT] = f"{folder}/socket"
    if (ours := _served(os.environ[LISTENS_AT])) is None:
        return 0
    try:
        return int(pytest.main(sys.argv[1:]))
    finally:
        ours.close()
        shutil.rmtree(folder)


def _served(path: str) -> socket.socket | None:
    """Fork a server that listens there until what is returned is closed; None in that server, at its end."""
    ours, theirs = socket.socketpair()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    if os.fork() != 0:
        theirs.close()
        listener.close()
        return ours
    ours.close()
    importlib.import_module("tests.fork_server").serve(theirs, listener)
    return None
