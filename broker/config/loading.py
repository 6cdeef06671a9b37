"""From a file to a Config, or to one error that lists every problem in it."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from broker.config import reader
from broker.config.reader import ConfigError, Document, Place, Problem, show
from broker.config.schema import Agent, Block, Config, KeptHead, Limits, Operator, Sandbox, Server

HINT = "every key is explained in docs/formats/config.md; a new file is written by: lever init"
_STRUCTURES = {
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "too_short": "at least one entry",
    "too_long": "at most 8 entries",
}


def load(path: Path) -> Config:
    """The checked configuration in a file. Raises ConfigError."""
    document = reader.read(_raw(path))
    problems = document.problems
    if problems and document.value is None:
        raise ConfigError(str(path), problems, HINT)
    config = None
    try:
        config = Config.model_validate(document.value, context={"folder": path.absolute().parent})
    except ValidationError as error:
        told = {problem.place for problem in problems}
        found = [_problem(document, details) for details in error.errors(include_url=False)]
        problems = problems + [problem for problem in found if problem.place not in told]
    if problems or config is None:
        raise ConfigError(str(path), problems, HINT)
    return config


def _raw(path: Path) -> bytes:
    try:
        # A FIFO would keep us waiting for its other end.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(str(path), [Problem(None, "expected a regular file")], f"look at: ls -ld {path}")
            return file.read(reader.MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(str(path), [Problem(None, "there is no such file")], "write one with: lever init") from error
    except OSError as error:
        text = f"can't be read: {(error.strerror or type(error).__name__).lower()}"
        raise ConfigError(str(path), [Problem(None, text)], f"look at: ls -ld {path}") from error


def _problem(document: Document, details: ErrorDetails) -> Problem:
    loc, kind = details["loc"], details["type"]
    if kind == "extra_forbidden":
        return Problem(_nearest(document.keys, loc), _unknown(loc))
    if kind == "missing":
        return Problem(_nearest(document.places, loc[:-1]), f"expected the key `{loc[-1]}`, which is missing")
    said = details.get("ctx", {}) if kind == "expected" else {"expected": _STRUCTURES.get(kind, details["msg"])}
    of_key = loc[-1:] == ("[key]",) and loc not in document.places
    place = _nearest(document.keys, loc[:-1]) if of_key else _nearest(document.places, loc)
    return Problem(place, f"expected {said['expected']}; found {said.get('found') or show(details['input'])}")


def _unknown(loc: reader.Path) -> str:
    key, siblings = str(loc[-1]), list(_known(loc[:-1]))
    near = difflib.get_close_matches(key, siblings, n=1, cutoff=0.6)
    advice = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(siblings)}"
    return f"unknown key {show(key)}; {advice}"


def _known(parent: reader.Path) -> Iterator[str]:
    """The keys that may stand in the block at this path."""
    for name, field in _block(parent).model_fields.items():
        yield field.alias or name


def _block(parent: reader.Path) -> type[Block]:
    match parent:
        case ():
            return Config
        case ("operator",):
            return Operator
        case ("limits",):
            return Limits
        case ("kept_head",):
            return KeptHead
        case ("servers", _):
            return Server
        case ("servers", _, "sandbox"):
            return Sandbox
        case _:
            return Agent


def _nearest(places: dict[reader.Path, Place], loc: reader.Path) -> Place | None:
    """Where this stands, or else what it stands in."""
    while loc and loc not in places:
        loc = loc[:-1]
    return places.get(loc, Place(1, 1))
