"""The power goes, or the disk refuses, at every call of the whole core: what was told holds, and nothing happens twice.

Figures: `pytest -rP` prints how many crash points were tried. LEVER_SOAK=1 tries every byte and every error.
"""

from __future__ import annotations

import errno
import os
import typing
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from broker import restart
from broker.journal.create import create
from broker.journal.state import StateFolder
from broker.wire.names import Instant
from broker.wire.records import Fact, InstanceCreated
from broker.wire.times import SECOND
from tests.fakes.fake_disk import Fault, PowerCutError, Short, at_most
from tests.journal import setting
from tests.proof.authority_story import AuthorityStory
from tests.proof.life import Life, Moment, examine
from tests.proof.scenario import Story
from tests.proof.watched_disk import WatchedDisk

SOAK = bool(os.environ.get("LEVER_SOAK"))
TORN_BYTES = 1 if SOAK else 101  # of an unsynced tail, every n-th cut is tried
CUT = {Story: 1, AuthorityStory: 1 if SOAK else 7}  # every n-th call has a power cut; odd, to meet writes and syncs
REFUSED = {Story: 1 if SOAK else 5, AuthorityStory: 1 if SOAK else 13}  # and is refused by the disk
CLOSELY = 1 if SOAK else 16  # at every n-th call the start itself is cut off too, and a life goes on behind it
ALL = 1 << 30
ERRORS = (errno.EIO, errno.ENOSPC)
STORIES: tuple[type[Story], ...] = (Story, AuthorityStory)
EACH = pytest.mark.parametrize("kind", STORIES, ids=["directives", "authority"])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StateFolder]:
    """A state folder whose journal lies on watched disks."""
    with StateFolder.create(tmp_path / "state", setting.DEMO) as made:
        yield made


def new_life(folder: StateFolder, faults: dict[int, Fault] | None = None) -> Life:
    """A new journal. faults: by the number of a call of the story."""
    disk = WatchedDisk([folder.path, folder.journal, folder.payloads])
    create(folder, disk, setting.CA_DIGEST, setting.CREATED_AT)
    disk.calls.clear()
    disk.faults = faults or {}
    return Life(folder, disk)


async def told_whole(folder: StateFolder, faults: dict[int, Fault] | None = None, kind: type[Story] = Story) -> Life:
    """A story with nothing in its way."""
    return (await story_of(new_life(folder, faults), kind)).life


async def story_of(life: Life, kind: type[Story]) -> Story:
    """The whole of it, with nothing in its way."""
    story = kind(life)
    await story.tell()
    assert not life.unanswered
    return story


class EveryWrite(dict[int, Fault]):
    """A disk that takes no more than so many bytes at once."""

    def __init__(self, taken: int) -> None:
        super().__init__()
        self._short = Short(taken)

    def get(self, _at: int, _default: object = None) -> Short:
        return self._short


def crashes(moment: Moment) -> Iterator[Callable[[], WatchedDisk]]:
    """What a power cut at this moment may leave: unsynced bytes lost, kept, or torn; new names lost or kept."""
    unsynced = moment.disk.unsynced()
    for names_kept in (False, True):
        for kept in (0, *range(1, unsynced, TORN_BYTES), ALL):
            yield partial(moment.disk.crash, at_most(kept), names_kept=names_kept)


async def examine_all(life: Life, every: int) -> int:
    """A restart after each n-th of them; how many differ in what lies there or in who was told."""
    tried: set[tuple[bytes, int, int]] = set()
    for moment in life.moments[::every]:
        for crash in crashes(moment):
            disk = crash()
            point = disk.digest(), len(moment.told), len(moment.begun)
            if point in tried:
                continue
            tried.add(point)
            closely = len(tried) % CLOSELY == 0
            examine(life, disk, moment.told, moment.begun, thorough=closely)
            if closely:
                await cut_off_again(life, crash, moment)
                await go_on(life, disk, moment)
    return len(tried)


async def cut_off_again(life: Life, crash: Callable[[], WatchedDisk], moment: Moment) -> None:
    """The power goes once more, at each call of the start that mends what the first cut left."""
    for at in count(1):
        disk = crash()
        disk.faults = {at: PowerCutError()}
        try:
            restart.read(life.folder, disk)
        except PowerCutError:
            for kept in (0, ALL):
                examine(life, disk.crash(at_most(kept), names_kept=bool(kept)), moment.told, moment.begun)
        else:
            return


async def go_on(life: Life, disk: WatchedDisk, moment: Moment) -> None:
    """A broker starts on what is left, works, stops; the next start reads all of it, and what was promised holds."""
    after = Life(life.folder, disk, told=[*moment.told], begun=[*moment.begun])
    book, _ = restart.read(life.folder, disk)
    async with after.session(Instant(book.newest_at + SECOND)):
        await Story(after, Instant(book.newest_at + SECOND)).selftest()
    assert len(after.told) == len(moment.told) + 4
    examine(after, disk, after.told, after.begun)


# --- the tests --------------------------------------------------------------------------------------------------------


async def test_the_stories_write_every_kind_of_record(folder: StateFolder) -> None:
    there: set[type] = {InstanceCreated}
    for kind in STORIES:
        life = await told_whole(folder, kind=kind)
        there |= {type(record.fact) for record in life.records}
        assert len(life.disk.names(folder.journal)) >= 3
        assert max(life.disk.names(folder.payloads)) > "00000002"
    assert there == set(typing.get_args(Fact)), "a kind of record that no crash was tried with: tell of it in a story"


@EACH
async def test_the_story_is_the_same_each_time(folder: StateFolder, kind: type[Story]) -> None:
    one, other = await told_whole(folder, kind=kind), await told_whole(folder, kind=kind)
    assert one.disk.calls == other.disk.calls
    assert one.disk.digest() == other.disk.digest()
    assert [ask.name for ask in one.told] == [ask.name for ask in other.told]


@pytest.mark.promise("P3", "P4", "P5", "P8", "P14", "P15", "P20", "P23", "P28")
@EACH
async def test_a_power_cut_at_every_call_takes_back_nothing_that_was_told(
    folder: StateFolder, kind: type[Story]
) -> None:
    life = new_life(folder)
    life.watch()
    await story_of(life, kind)
    life.moments.append(life.moment())
    tried = await examine_all(life, CUT[kind])
    print(f"power cuts: {tried} crash points at {len(life.disk.calls)} calls, {len(life.told)} answers")
    assert tried > len(life.disk.calls) // CUT[kind]


@pytest.mark.promise("P4", "P5")
@EACH
@pytest.mark.parametrize("taken", [150])
async def test_a_disk_that_takes_a_part_of_each_write_changes_nothing(
    folder: StateFolder, kind: type[Story], taken: int
) -> None:
    whole = await told_whole(folder, kind=kind)
    life = await told_whole(folder, EveryWrite(taken), kind)
    assert life.disk.digest() == whole.disk.digest()
    assert [ask.name for ask in life.told] == [ask.name for ask in whole.told]


@pytest.mark.promise("P4", "P5", "P20", "P23", "P28")
@EACH
async def test_after_a_refusal_of_the_disk_at_any_call_nothing_is_told_and_all_that_was_told_holds(
    folder: StateFolder, kind: type[Story]
) -> None:
    story = await story_of(new_life(folder), kind)
    whole, tried = story.life, 0
    for at in range(1, len(whole.disk.calls) + 1, REFUSED[kind]):
        for number in ERRORS if SOAK else [ERRORS[at % 2]]:
            chapter = next(c for c in reversed(story.chapters) if len(c.life.disk.calls) < at).copy()
            life = chapter.life
            life.disk.faults = {at: OSError(number, os.strerror(number))}
            await chapter.tell()
            if life.disk.struck:
                assert len(life.disk.calls) == at, "the disk was asked again"
                words = f"cannot write to the journal in {folder.path}: {os.strerror(number)}"
                assert [why.why for why in life.stopped] == [words]
            else:
                assert len(life.told) == len(whole.told), "what is made beside the journal stopped it"
            disks = life.disk.moment(), life.disk.crash(at_most(0), names_kept=False)
            for disk in {disk.digest(): disk for disk in disks}.values():
                examine(life, disk, life.told, life.begun, thorough=SOAK or at % CLOSELY == 0)
                tried += 1
    print(
        f"refusals of the disk: {tried} restarts, after one at every {REFUSED[kind]}. of {len(whole.disk.calls)} calls"
    )
