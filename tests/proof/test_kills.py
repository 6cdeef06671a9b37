"""kill -9 at random moments, while client processes hammer the daemon: what they were told is what is there.

Figures: `pytest -rP` prints how many kills met operations in flight, and what came of the tool calls.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.forge import Forge
from tests.proof.kills import survive

KILLS = 50  # of one instance: with a longer journal each start takes longer, and finds nothing more


@pytest.mark.promise("P4", "P3", "P2", "P8", "P14", "P15", "P20", "P21", "P23", "P24", "P27")
@pytest.mark.parametrize("run", range(4))
def test_what_clients_were_told_survives_every_kill(forge: Forge, instance: Path, seed: int, run: int) -> None:
    figures = survive(forge, instance, seed, KILLS)
    print(figures)
    assert not figures.violations, "\n".join([str(figures), *figures.violations])
    assert figures.acknowledged > KILLS, f"{figures}: hardly anybody was there"
    assert figures.busy > KILLS // 3, f"{figures}: hardly anybody waited for an answer"
    assert figures.executions, f"{figures}: no tool was called"
