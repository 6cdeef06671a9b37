"""A disk that refuses, takes half, or is gone at any one of the daemon's calls: it stops, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.failing_disk import FailingDisk
from tests.proof.faults import each_fault, endure
from tests.proof.forge import Forge


@pytest.mark.promise("P28", "P4")
def test_whatever_call_fails_nothing_that_was_acknowledged_is_lost(
    forge: Forge, disk: FailingDisk | None, instance: Path, seed: int
) -> None:
    if disk is None:
        pytest.skip("no C compiler")
    faults = each_fault(seed, times=2)
    figures, met = endure(forge, instance, seed, disk, faults)
    print(figures)
    assert not figures.violations, "\n".join([str(figures), *figures.violations])
    assert met > len(faults) // 3, f"{figures}: {met} of {len(faults)} faults were met"
    assert figures.executions, f"{figures}: no tool was called"
