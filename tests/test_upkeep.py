"""What a running broker does beside its work: snapshots, in a process of their own, and the end of old payloads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from broker.config import load
from broker.journal import segments, snapshot
from broker.journal.disk import RealDisk
from broker.journal.state import StateFolder
from broker.upkeep import DAY_S, Upkeep
from broker.wire.names import Instant
from broker.wire.times import SECOND
from tests.journal import setting
from tests.proof import life as lives
from tests.proof.authority_cast import POLICY, a_policy
from tests.proof.authority_story import AuthorityStory
from tests.proof.life import Life, examine
from tests.proof.test_every_call import new_life
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


DAYS = 5
MONTH_S = 30 * DAY_S


async def dropped(life: Life, config: Path, at: int) -> set[int]:
    """The payload segments that are gone once a broker of this configuration has looked, at this time."""
    before = {*segments.extent(life.disk, life.folder.payloads).numbers}
    cares = Upkeep.of(load(config), life.folder, life.disk, life.turn, life.journal, lambda: Instant(at), None)
    await cares.drop_payloads()
    return before - {*segments.extent(life.disk, life.folder.payloads).numbers}


async def in_force(story: AuthorityStory) -> None:
    """Accepted tools, policies, a request that waits, a lease; and last an act that lives on for a month."""
    await story._tools_are_accepted()
    await story.apply("instance", a_policy("another"))
    await story.apply("instance", POLICY)
    for word in ("waits", "lives"):
        await story.asks(word, "write_file", word)
    await story.lease("lease-1")
    await story.approve("lives", "act-lives", lasts_s=MONTH_S)


async def test_what_is_in_force_outlives_the_retention_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn has a segment of its own. The machine was suspended, and dies: what has ended is not closed yet."""
    monkeypatch.setattr(lives, "SEGMENT_BYTES", 1)
    (config := tmp_path / "lever.yaml").write_text(f"instance: demo\nlimits: {{payload_days: {DAYS}}}\n")
    with StateFolder.create(tmp_path / "state", setting.DEMO) as folder:
        life = new_life(folder)
        story = AuthorityStory(life)
        async with life.session(story.at):
            await in_force(story)
            book, kept = life.turn.book, DAYS * DAY_S * SECOND
            first, needed = min(book.payloads_until), book.ledger.pinned()
            assert not await dropped(life, config, book.payloads_until[first] + kept - 1)
            gone = await dropped(life, config, book.payloads_until[first] + kept)
            assert first in gone
            gone |= await dropped(life, config, story.at + DAY_S * SECOND + kept)
            through = {*range(1, book.payloads_dropped + 1)}
            assert gone == through - needed
            assert (len(gone) > 4, len(needed & through) > 2) == (True, True)
            examine(life, life.disk.moment(), life.told, life.begun)
