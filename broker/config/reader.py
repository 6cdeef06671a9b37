"""Reads YAML as far as a configuration needs it: mappings, lists, plain values; and remembers where each one stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamStartEvent,
)
from ruamel.yaml.reader import ReaderError

from broker.errors import Malformed

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 16
Tree = None | bool | int | str | list["Tree"] | dict[str, "Tree"]
Path = tuple[str | int, ...]
"""The way from the top of the document to a value: keys and list positions."""

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_WORDS: dict[str, Tree] = {"": None, "~": None, "null": None, "true": True, "false": False}


class Place(NamedTuple):
    """Where something stands in the file, counted from 1."""

    line: int
    column: int


class Problem(NamedTuple):
    """One thing that is wrong, and where. place is None when it is about the file as a whole."""

    place: Place | None
    text: str


class ConfigError(Malformed):
    """The configuration can't be used. `problems` holds every one found; `str()` is one line for each.

    where: FILE:LINE:COLUMN of the first problem; why: its text; hint: what would help.
    """

    def __init__(self, file: str, problems: Sequence[Problem], hint: str = "") -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.place or (0, 0)))
        self.hint = hint
        told = [(_spell(file, problem.place), problem.text) for problem in self.problems]
        self.lines = tuple(f"{where}: {text}" for where, text in told)
        super().__init__(*told[0])

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(slots=True)
class Document:
    """A file's one value. places: by path, where the value stands; keys: by path, where its key stands."""

    value: Tree = None
    places: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class _Stop(Exception):
    """Reading on makes no sense after this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def read(raw: bytes) -> Document:
    """The document in these bytes, or as much of it as could be read, and the problems met on the way."""
    document = Document()
    try:
        text = _text(raw)
        _Reader(document, _events(text)).document()
    except _Stop as stop:
        document.problems.append(stop.problem)
    return document


def _text(raw: bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise _Stop(Problem(None, f"expected at most {MAX_BYTES} bytes, found {len(raw)} or more"))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        start = error.start
        place = Place(raw.count(b"\n", 0, start) + 1, start - raw.rfind(b"\n", 0, start))
        raise _Stop(Problem(place, f"expected UTF-8, found the byte 0x{raw[start]:02x}")) from error


def _events(text: str) -> Iterator[Event]:
    """The YAML parser's events. Whatever it raises becomes a problem."""
    try:
        yield from YAML(typ="rt", pure=True).parse(text)
    except ReaderError as error:
        before = text[: error.position]
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise _Stop(Problem(place, f"expected text, found the character U+{error.character:04X}")) from error
    except MarkedYAMLError as error:
        raise _Stop(_syntax(error)) from error
    except Exception as error:  # for hostile bytes the parser raises OverflowError and others beside its own
        raise _Stop(Problem(None, f"not YAML: {show(str(error))}")) from error


def show(value: object) -> str:
    """A value from the file in one short line of printable ASCII, for an error text."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list | tuple):
        return ("a mapping" if isinstance(value, dict) else "a list") if value else "an empty one"
    text = json.dumps(value if isinstance(value, bool | int) else str(value))
    return text if len(text) <= 60 else text[:56] + '..."'


class _Reader:
    """Folds the parser's events into one document. Depth is bounded, so no input can exhaust the stack."""

    def __init__(self, document: Document, events: Iterator[Event]) -> None:
        self._document = document
        self._events = events

    def document(self) -> None:
        event = next(self._events)
        if isinstance(event, StreamStartEvent):
            event = next(self._events)
        if not isinstance(event, DocumentStartEvent):
            raise _Stop(Problem(None, "expected a mapping, found an empty file"))
        if event.version or event.tags:
            self._note(event, "expected no % directive")
        self._document.value = self._node(next(self._events), ())
        next(self._events)  # the document's end
        event = next(self._events)
        if isinstance(event, DocumentStartEvent):
            self._note(event, "expected one document, found another after `---`")

    def _note(self, event: Event, text: str) -> None:
        self._document.problems.append(Problem(_place(event), text))

    def _node(self, event: Event, path: Path) -> Tree:
        missing = isinstance(event, ScalarEvent) and not event.value and not event.style
        self._document.places[path] = self._document.keys.get(path, _place(event)) if missing else _place(event)
        if isinstance(event, AliasEvent):
            self._note(event, f"expected a value, found the alias {show('*' + event.anchor)}; write the value out")
            return None
        assert isinstance(event, ScalarEvent | CollectionStartEvent)
        if event.anchor is not None:
            self._note(event, f"expected a value, found the anchor {show('&' + event.anchor)}; write the value out")
        if event.ctag is not None:
            self._note(event, f"expected a value without a tag, found {show(str(event.ctag))}")
        if len(path) > MAX_DEPTH:
            raise _Stop(Problem(_place(event), f"expected at most {MAX_DEPTH} levels"))
        if isinstance(event, MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(path)
        assert isinstance(event, ScalarEvent)
        if not event.value.isascii() and not _encodable(event.value):
            self._note(event, "expected text, found half a surrogate pair")
        return str(event.value) if event.style else _plain(event.value)

    def _mapping(self, path: Path) -> dict[str, Tree]:
        found: dict[str, Tree] = {}
        while not isinstance(key := next(self._events), MappingEndEvent):
            if not isinstance(key, ScalarEvent):
                raise _Stop(Problem(_place(key), "expected a plain key"))
            if key.anchor is not None or key.tag is not None:
                self._note(key, "expected a key without an anchor or a tag")
            here = (*path, key.value)
            if key.value in found:
                first = self._document.keys[here]
                self._note(key, f"expected each key once, found {show(key.value)} again (first on line {first.line})")
                self._skip(next(self._events), len(path))
                continue
            self._document.keys[here] = _place(key)
            found[key.value] = self._node(next(self._events), here)
        return found

    def _sequence(self, path: Path) -> list[Tree]:
        found: list[Tree] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            found.append(self._node(event, (*path, len(found))))
        return found

    def _skip(self, event: Event, depth: int) -> None:
        """Pass over the value of a repeated key: the first one stands."""
        apart = _Reader(Document(), self._events)
        apart._node(event, (0,) * (depth + 1))


def _plain(text: str) -> Tree:
    """An unquoted value. Fewer words than YAML knows: `yes`, `0x1f`, `1_000`, dates and fractions stay text."""
    return int(text) if _INTEGER.fullmatch(text) else _WORDS.get(text, text)


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _place(event: Event) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _syntax(error: MarkedYAMLError) -> Problem:
    """What the YAML parser says, without the page of advice that it adds."""
    mark = error.problem_mark or error.context_mark
    words = " ".join(part for part in (error.problem, error.context) if part)
    escaped = words.encode("ascii", "backslashreplace").decode()
    return Problem(Place(mark.line + 1, mark.column + 1) if mark else None, f"not YAML: {escaped}")


def _spell(file: str, place: Place | None) -> str:
    return file if place is None else f"{file}:{place.line}:{place.column}"
