"""One vector and one file of them, as `python -m tests.vectors` writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TAKEN = "taken"
Wrong = tuple[str, str, str, str]
"""The text, what it is replaced by, the part that the refusal names, some of its words."""


@dataclass(frozen=True)
class Case:
    """Bytes and what must come of them.

    outcome: `taken`, or what the refusal is called; where: the part that it must name; why: a part of its words; says:
    some of the value.
    """

    name: str
    raw: bytes
    outcome: str = TAKEN
    where: str = ""
    says: Any = None
    why: str = ""

    def __str__(self) -> str:
        return self.name

    def row(self) -> dict[str, Any]:
        """As it stands in the file."""
        row: dict[str, Any] = {"name": self.name, "hex": self.raw.hex(), "outcome": self.outcome}
        more = {"where": self.where, "why": self.why, "says": self.says}
        return row | {name: value for name, value in more.items() if value}

    @classmethod
    def of(cls, row: dict[str, Any]) -> Case:
        """From its row in the file."""
        return cls(
            row["name"],
            bytes.fromhex(row["hex"]),
            row["outcome"],
            row.get("where", ""),
            row.get("says"),
            row.get("why", ""),
        )


def refused(name: str, raw: bytes, where: str, by: str = "Malformed", why: str = "") -> Case:
    """Bytes that must be refused."""
    return Case(name, raw, by, where, why=why)


def changed(base: str, taken: Mapping[str, tuple[str, str, str]], wrong: Mapping[str, Wrong]) -> tuple[Case, ...]:
    """A document in which one text is replaced by another: what is taken says this, what is refused names that."""
    made = [Case(name, _replaced(base, old, new), says=says) for name, (old, new, says) in taken.items()]
    bad = (refused(name, _replaced(base, old, new), where, why=why) for name, (old, new, where, why) in wrong.items())
    return (*made, *bad)


def _replaced(base: str, old: str, new: str) -> bytes:
    assert old in base, f"nothing to replace: {old}"
    return base.replace(old, new, 1).encode()


@dataclass(frozen=True)
class File:
    """The vectors of one format. page: the document that decides."""

    name: str
    about: str
    page: str
    cases: tuple[Case, ...]

    def text(self) -> str:
        """The file, a case to a line."""
        rows = ",\n".join(f"    {json.dumps(case.row())}" for case in self.cases)
        head = f'  "about": {json.dumps(self.about)},\n  "page": {json.dumps(self.page)},\n'
        return f'{{\n{head}  "cases": [\n{rows}\n  ]\n}}\n'
