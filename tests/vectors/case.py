"""One vector and one file of them, as `python -m tests.vectors` writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

TAKEN = "taken"


@dataclass(frozen=True)
class Case:
    """Bytes and what must come of them.

    outcome: `taken`, or what the refusal is called; where: the part that it must name; says: some of the value.
    """

    name: str
    raw: bytes
    outcome: str = TAKEN
    where: str = ""
    says: Any = None

    def __str__(self) -> str:
        return self.name

    def row(self) -> dict[str, Any]:
        """As it stands in the file."""
        row: dict[str, Any] = {"name": self.name, "hex": self.raw.hex(), "outcome": self.outcome}
        return row | ({"where": self.where} if self.where else {}) | ({"says": self.says} if self.says else {})

    @classmethod
    def of(cls, row: dict[str, Any]) -> Case:
        """From its row in the file."""
        return cls(row["name"], bytes.fromhex(row["hex"]), row["outcome"], row.get("where", ""), row.get("says"))


def refused(name: str, raw: bytes, where: str, by: str = "Malformed") -> Case:
    """Bytes that must be refused."""
    return Case(name, raw, by, where)


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
