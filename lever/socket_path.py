"""How long the operator socket's path may be, and where a shorter one is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from broker.wire.names import Instance

MAX_BYTES = 107 if sys.platform == "linux" else 103


def too_long(path: Path) -> str:
    """What is wrong with the path's length, or nothing."""
    length = len(os.fsencode(path))
    if length <= MAX_BYTES:
        return ""
    return f"expected a socket path of at most {MAX_BYTES} bytes, found one of {length}: {path}"


def shorter(instance: Instance, config: Path) -> str:
    """How to have a shorter one."""
    return f"mkdir -m 700 -p ~/.lever; then set in {config}, in the operator block: socket: ~/.lever/{instance}.sock"
