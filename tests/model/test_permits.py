"""What the operator allows is what happens, whatever comes in whatever order, through crashes and clocks."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.model.permit_machine import COUNTS, Permission
from tests.model.thorough import thorough

SETTINGS = thorough(80, soak_steps=100)


def run() -> None:
    run_state_machine_as_test(Permission, settings=SETTINGS)


@pytest.mark.promise("P20", "P21", "P22", "P23", "P24")
def test_the_rules_and_the_model_agree_on_every_call_and_every_consent() -> None:
    run()
    few = {name for name in ("sent under an act", "sent under a lease", "granted", "records lost") if COUNTS[name] < 10}
    assert not few, "steps that reach nothing compare nothing"
