"""Everything that is wrong with a document of JSON values, noted with its path: one walk tells all of it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias, TypeVar

from broker.errors import Malformed
from broker.wire.strict_json import JsonObject, JsonValue

T = TypeVar("T")
Path: TypeAlias = tuple[str | int, ...]
_SHOWN_CHARS = 60


class Problem(NamedTuple):
    """One thing that is wrong. at_key: it is about the key at the path, and not about its value."""

    path: Path
    text: str
    at_key: bool = False


def found(value: JsonValue) -> str:
    """A value in one short line of printable ASCII."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return ("a mapping" if isinstance(value, dict) else "a list") if value else "an empty one"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 4] + '..."'


class Notes:
    """Takes values out of a document. What is not as it has to be is noted, and read as if it were not there."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def note(self, path: Path, text: str, *, at_key: bool = False) -> None:
        """A problem in words of one's own."""
        self.problems.append(Problem(path, text, at_key))

    def wrong(self, path: Path, expected: str, value: JsonValue) -> None:
        """The usual problem."""
        self.note(path, f"expected {expected}; found {found(value)}")

    def mapping(self, value: JsonValue, path: Path) -> JsonObject:
        """A mapping with keys of any name."""
        if isinstance(value, dict):
            return value
        self.wrong(path, "a mapping", value)
        return {}

    def fields(self, value: JsonValue, path: Path, required: Collection[str], optional: Collection[str]) -> JsonObject:
        """The known keys of a mapping. An unknown one is told with the known one that it resembles."""
        known = [*required, *optional]
        members = self.mapping(value, path)
        for name in members:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                advice = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(known)}"
                self.note((*path, name), f"unknown key {found(name)}; {advice}", at_key=True)
        if isinstance(value, dict):
            for name in required:
                if name not in members:
                    self.note(path, f"expected the key `{name}`, which is missing")
        return {name: members[name] for name in known if name in members}

    def items(self, value: JsonValue, path: Path, *, least: int = 0, expected: str = "a list") -> list[JsonValue]:
        """The elements of a list."""
        if not isinstance(value, list):
            self.wrong(path, expected, value)
            return []
        if len(value) < least:
            self.wrong(path, "at least one entry", value)
        return value

    def number(self, value: JsonValue, path: Path, low: int, high: int) -> int:
        """A whole number within bounds; `low` where it is not."""
        if type(value) is int and low <= value <= high:
            return value
        self.wrong(path, f"a whole number from {low} to {high}", value)
        return low

    def truth(self, value: JsonValue, path: Path) -> bool:
        """true or false, and no text that says so."""
        if isinstance(value, bool):
            return value
        self.wrong(path, "true or false, without quotes", value)
        return False

    def taken(self, parse: Callable[[JsonValue], T], value: JsonValue, path: Path) -> T | None:
        """What a parser of the wire makes of a value; None where it raises Malformed."""
        try:
            return parse(value)
        except Malformed as error:
            why = error.why if error.why.startswith("expected ") else f"expected another {error.where}: it {error.why}"
            self.note(path, f"{why}; found {found(value)}")
            return None
