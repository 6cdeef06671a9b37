"""What a running broker does beside its work: it takes its snapshots in a process of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from broker.journal import snapshot
from broker.journal.disk import RealDisk
from broker.journal.state import StateFolder
from broker.upkeep import Upkeep
from broker.wire.names import Instant
from tests.journal import setting
from tests.proof.test_snapshots import lived, start

__all__ = ["lived"]


def upkeep(folder: StateFolder) -> Upkeep:
    nobody = cast(Any, None)
    return Upkeep(folder, RealDisk(), nobody, nobody, lambda: Instant(0), 90 * 86400, None, 0)


async def test_a_snapshot_is_made_once_a_segment_is_closed_and_the_next_start_uses_it(
    lived: Path, caplog: pytest.LogCaptureFixture
) -> None:
    everything = start(lived)
    with StateFolder.open(lived, setting.DEMO) as folder:
        caplog.set_level("INFO")
        await upkeep(folder).snapshot()
        made = snapshot.read(RealDisk(), lived, setting.DEMO)
        assert made
        assert made.segment == snapshot.closed(RealDisk(), lived)
        (lived / snapshot.NAME).unlink()
        again = upkeep(folder)
        await again.snapshot()
        (lived / snapshot.NAME).rename(lived.parent / "kept")
        await again.snapshot()
        assert not (lived / snapshot.NAME).exists(), "nothing was closed meanwhile"
        shutil.move(lived.parent / "kept", lived / snapshot.NAME)
    assert start(lived) == everything
