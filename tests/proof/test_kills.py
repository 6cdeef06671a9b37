"""kill -9 at random moments, while client processes hammer the daemon: what they were told is what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.forge import Forge
from tests.proof.kills import survive

KILLS = 30


@pytest.mark.promise("P4", "P3", "P2", "P8", "P14", "P15", "P27")
@pytest.mark.parametrize("run", ["one", "two"])
def test_what_clients_were_told_survives_every_kill(forge: Forge, instance: Path, seed: int, run: str) -> None:
    figures = survive(forge, instance, seed, KILLS)
    assert not figures.violations, "\n".join([str(figures), *figures.violations])
    assert figures.acknowledged > KILLS, f"{figures}: hardly anybody was there"
