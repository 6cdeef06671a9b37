"""Foreign text inside a line of ours."""

from __future__ import annotations

MAX_CHARACTERS = 200


def escaped(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Text of foreign origin for one line of a log: nothing in it can end the line, hide or reorder it."""
    cut = text[:max_characters]
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)
    return shown if cut == text else f"{shown}..."
