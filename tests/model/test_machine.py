"""The real rules do what the documents say, whatever comes in whatever order, also through crashes and clocks."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Lifecycle
from tests.model.stage import COUNTS
from tests.model.thorough import thorough

SETTINGS = thorough(250, soak_steps=80)


def run() -> None:
    run_state_machine_as_test(Lifecycle, settings=SETTINGS)


@pytest.mark.promise("P2", "P4", "P8", "P14", "P15")
def test_the_rules_and_the_model_agree_on_every_answer_and_every_listing() -> None:
    run()
    few = {name for name in ("handed out", "repeats", "records lost", "clocks set back") if COUNTS[name] < 10}
    assert not few, "steps that reach nothing compare nothing"
