"""From a policy file to a Policy, or to one error that lists every problem in it: docs/formats/policy.md."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from broker.config import reader
from broker.config.reader import ConfigError, Document, Problem
from broker.errors import Malformed
from broker.wire import notes, policy
from broker.wire.policy import NotAPolicy, Policy
from broker.wire.strict_json import JsonValue

HINT = "every key is explained in docs/formats/policy.md; docs/policies has files to start from"


def load(path: Path) -> Policy:
    """The policy in a file. Raises ConfigError."""
    document = read(path, HINT)
    try:
        made = policy.of(json_value(document))
    except NotAPolicy as error:
        raise problems_of(path, document, error.problems, HINT) from error
    except Malformed as error:
        raise ConfigError(str(path), [*document.problems, Problem(None, str(error))], HINT) from error
    if document.problems:
        raise ConfigError(str(path), document.problems, HINT)
    return made


def read(path: Path, hint: str) -> Document:
    """A file's YAML. Raises ConfigError for one in which there is no value at all."""
    document = reader.read(read_bytes(path, reader.MAX_BYTES + 1))
    if document.problems and document.value is None:
        raise ConfigError(str(path), document.problems, hint)
    return document


def json_value(document: Document) -> JsonValue:
    """What was read, as the JSON that it is: a file's tree is JSON without fractions."""
    return cast("JsonValue", document.value)


def read_bytes(path: Path, at_most: int) -> bytes:
    """The beginning of a regular file. Raises ConfigError."""
    try:
        # A FIFO would keep us waiting for its other end.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(str(path), [Problem(None, "expected a regular file")], f"look at: ls -ld {path}")
            return file.read(at_most)
    except OSError as error:
        text = f"can't be read: {(error.strerror or type(error).__name__).lower()}"
        raise ConfigError(str(path), [Problem(None, text)], f"look at: ls -ld {path}") from error


def problems_of(path: Path, document: Document, found: Sequence[notes.Problem], hint: str) -> ConfigError:
    """What is wrong with a document's value, each at its line, after what was wrong with its text."""
    told = {problem.place for problem in document.problems}
    placed = [Problem(_place(document, problem), problem.text) for problem in found]
    return ConfigError(str(path), [*document.problems, *(each for each in placed if each.place not in told)], hint)


def _place(document: Document, problem: notes.Problem) -> reader.Place:
    places = document.keys if problem.at_key else document.places
    return places.get(problem.path, reader.Place(1, 1))
