"""Bytes as an open file without a name: what a process or a library reads through /dev/fd/N."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unlinked(content: bytes) -> Iterator[int]:
    """A descriptor of a nameless file that holds `content`, at offset 0, not inherited, closed at the end.

    /dev/fd/N of it can be opened once: on macOS all who open it share one offset.
    """
    descriptor = _open()
    try:
        at = 0
        while at < len(content):
            # pwrite leaves the offset at 0, where the reader starts.
            at += os.pwrite(descriptor, content[at:], at)
        yield descriptor
    finally:
        os.close(descriptor)


def _open() -> int:
    if sys.platform == "linux":
        return os.memfd_create("lever", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp()
    Path(path).unlink()
    return descriptor
