"""The data files of tests/vectors, as cases."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "vectors"


@dataclass(frozen=True)
class Case:
    """One document; where and why: what the refusal must name, empty for one that is taken."""

    name: str
    raw: bytes
    where: str
    why: str

    def __str__(self) -> str:
        return self.name


def load(name: str) -> Any:
    """A vector file's JSON."""
    return json.loads((FOLDER / f"{name}.json").read_bytes())


def taken(name: str) -> tuple[bytes, ...]:
    """The bytes of a generated file that must be taken."""
    return tuple(bytes.fromhex(row["hex"]) for row in load(name)["cases"] if row["outcome"] == "taken")


def cases(name: str, group: str) -> list[Case]:
    """The cases of one group, each replacement made in the file's base document."""
    document = load(name)
    base: str = document["base"]
    made = []
    for case in document[group]:
        old, new = case["replace"]
        if old not in base:
            raise ValueError(f"{name}: {case['name']}: nothing to replace")
        raw = base.replace(old, new, 1).encode()
        made.append(Case(case["name"], raw, case.get("where", ""), case.get("why", "")))
    return made
