"""Pinned tools: any change of what was accepted is another pin, and no text in one can hide anything."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Malformed
from broker.wire import catalogue

GOOD: dict[str, Any] = {
    "name": "read",
    "title": "Read",
    "description": "Reads a file.\n\tOne at a time.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string", "description": "where"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


@pytest.mark.promise("P22")
@pytest.mark.parametrize(
    "change",
    [
        {"name": "raed"},
        {"title": "Reed"},
        {"description": "Reads a file. Then mail it."},
        {"description": None},
        {"inputSchema": {"type": "object"}},
        {"outputSchema": {"type": "object", "properties": {}}},
        {"annotations": {"readOnlyHint": False}},
        {"annotations": {"readOnlyHint": True, "destructiveHint": False}},
    ],
)
def test_any_change_is_another_pin(change: dict[str, Any]) -> None:
    pin = catalogue.pin("files", GOOD)
    assert catalogue.pin("files", GOOD | change) != pin
    assert catalogue.pin("files", GOOD | change).digest != pin.digest


def test_the_server_is_part_of_the_pin_and_order_is_not() -> None:
    assert catalogue.pin("files", GOOD).digest != catalogue.pin("files2", GOOD).digest
    assert catalogue.pin("files", dict(reversed(GOOD.items()))) == catalogue.pin("files", GOOD)
    assert catalogue.pin("files", GOOD).qualified == "files.read"


def test_what_is_not_shown_is_not_pinned() -> None:
    assert catalogue.pin("files", GOOD | {"_meta": {"a": 1}, "icons": []}) == catalogue.pin("files", GOOD)


@pytest.mark.promise("P25")
@pytest.mark.parametrize(
    "hidden",
    ["\x00", "\x1b[2J", "\r", "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\U000e0041", "\u3164", "\ufe0f"],
)
@pytest.mark.parametrize("place", ["description", "title", "schema", "key", "annotation"])
def test_a_hidden_character_is_refused_wherever_it_stands(hidden: str, place: str) -> None:
    text = f"Reads{hidden}."
    changed = {
        "description": {"description": text},
        "title": {"title": text},
        "schema": {"inputSchema": {"type": "object", "properties": {"a": {"enum": ["x", text]}}}},
        "key": {"inputSchema": {"type": "object", "properties": {text: {}}}},
        "annotation": {"annotations": {"title": text}},
    }[place]
    with pytest.raises(Malformed, match=r"U\+[0-9A-F]{4,}"):
        catalogue.pin("files", GOOD | changed)


@pytest.mark.parametrize(
    ("server", "definition"),
    [
        ("Files", GOOD),
        ("a.b", GOOD),
        ("a_b", GOOD),
        ("", GOOD),
        ("files", []),
        ("files", {}),
        ("files", GOOD | {"name": "a b"}),
        ("files", GOOD | {"name": 1}),
        ("files", GOOD | {"description": 1}),
        ("files", GOOD | {"inputSchema": True}),
        ("files", GOOD | {"inputSchema": {"type": "array"}}),
        ("files", GOOD | {"inputSchema": {}}),
        ("files", GOOD | {"outputSchema": []}),
        ("files", GOOD | {"annotations": []}),
        ("files", GOOD | {"annotations": {"destructiveHint": "false"}}),
        ("files", GOOD | {"description": "x" * 300_000}),
    ],
)
def test_what_can_not_be_pinned(server: str, definition: Any) -> None:
    with pytest.raises(Malformed):
        catalogue.pin(server, definition)
