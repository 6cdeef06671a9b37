"""A clock that leaps ahead for a moment in which nothing is written, and comes back: what was used stays used."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from broker.errors import Refused
from broker.journal.state import StateFolder
from broker.rules import admin
from broker.rules.sweep import sweep
from broker.wire.names import Instant
from broker.wire.times import SECOND
from tests.journal import setting
from tests.proof import promises
from tests.proof.cast import A, caller, order
from tests.proof.scenario import Story
from tests.proof.test_every_call import new_life

DAY = 86400


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with StateFolder.create(tmp_path / "state", setting.DEMO) as folder:
        yield Story(new_life(folder))


@pytest.mark.promise("P3", "P8")
@pytest.mark.parametrize("leap_s", [60, 119, 121, 3600, 3 * DAY, 70 * 365 * DAY])
async def test_what_was_used_stays_used(story: Story, leap_s: int) -> None:
    life = story.life
    async with life.session(story.at):
        await story.invite(A, "ticket")
        await story.enrol(A, "ticket", "key", generation=1)
        await story.admit("plain")
        await story.consume("plain")
        used = order("list", story.at, "once")
        await story.take("list", partial(admin.take, order=used))
        written = life.turn.book.records
        await life.turn.take(sweep, Instant(story.at + leap_s * SECOND))
        assert life.turn.book.records == written
        again = Instant(story.at + SECOND)
        for decide in (
            partial(admin.take, order=used),
            story._admission("plain"),
            promises.consuming("plain", caller(A, 1)),
        ):
            with pytest.raises(Refused):
                await life.turn.take(decide, again)
