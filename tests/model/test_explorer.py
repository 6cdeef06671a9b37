"""A small world, whole: whoever does what, whenever the disk is done, and wherever it ends."""

from __future__ import annotations

import os

import pytest

from tests.model.explorer import Explorer

SOAK = bool(os.environ.get("LEVER_SOAK"))


def explore() -> Explorer:
    explorer = Explorer(("", "x", "y"), in_line=6) if SOAK else Explorer(("", "x", "y"), in_line=2)
    explorer.run()
    return explorer


@pytest.mark.promise("P2", "P3", "P4", "P14")
def test_no_order_of_turns_commits_and_crashes_breaks_a_promise() -> None:
    explorer = explore()
    assert explorer.closed, "no state was left unexplored"
    assert explorer.ends == {"DirectiveConsumed", "DirectiveRevoked", "DirectivesExpired", "invalidated"}
    assert explorer.states > 1500, "a space that shrinks has lost its operations"
