"""The data files of tests/vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "vectors"


def load(name: str) -> Any:
    """A vector file's JSON."""
    return json.loads((FOLDER / f"{name}.json").read_bytes())


def taken(name: str) -> tuple[bytes, ...]:
    """The bytes of a generated file that must be taken."""
    return tuple(bytes.fromhex(row["hex"]) for row in load(name)["cases"] if row["outcome"] == "taken")
