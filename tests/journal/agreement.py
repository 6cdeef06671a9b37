"""Two readers of one journal: the broker's, and the one that was written from the page. They must see the same."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker.errors import Fatal
from broker.journal import inspect
from broker.wire.records import Record
from tests.journal import decoder


def _plain(record: Record) -> list[Any]:
    """The record as its array in the file."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(record.fact).__name__).lower()
    refs = [[ref.digest, ref.segment, ref.offset, ref.length] for ref in record.payloads]
    fields = {field.name: getattr(record.fact, field.name) for field in dataclasses.fields(record.fact)}
    body = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    return [1, record.seq, record.at, record.prev, kind, refs, body, record.rest]


def _brokers(state: Path) -> list[Any] | str:
    """The records that the broker reads, or why it would not start."""
    try:
        report = inspect.verify(state)
        if report.whole:
            return [_plain(record) for record in inspect.walk(state)]
        return "; ".join(map(str, report.problems))
    except Fatal as error:
        return str(error)


def _pages(state: Path) -> list[Any] | str:
    """The same by the page."""
    try:
        return decoder.whole(state)
    except decoder.Wrong as error:
        return str(error)


def difference(state: Path) -> str:
    """What the two readers do not agree on in this state folder; empty when they agree, also that it is damaged."""
    ours, theirs = _brokers(state), _pages(state)
    if isinstance(ours, str) and isinstance(theirs, str):
        return ""
    if isinstance(ours, str) or isinstance(theirs, str):
        return f"{state}: the broker says {_short(ours)}, the page {_short(theirs)}"
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            return f"{state}: record {mine[1]}: the broker reads {mine}, the page {other}"
    return "" if len(ours) == len(theirs) else f"{state}: the broker reads {len(ours)} records, the page {len(theirs)}"


def _short(said: list[Any] | str) -> str:
    return said if isinstance(said, str) else f"{len(said)} records"


def states(root: Path) -> Iterator[Path]:
    """Every state folder below a folder."""
    for file in sorted(root.rglob("format")):
        if (file.parent / "journal").is_dir():
            yield file.parent
