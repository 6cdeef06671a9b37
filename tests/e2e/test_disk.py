"""A state folder that was lost, restored in parts, or is full: the daemon does not start, or stops; nothing reopens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.wire import statement
from broker.wire.act_records import CallClaimed
from tests.authority.desk import BETWEEN, FAKE, WATCHED, Desk, asked, call, code, wide_policy
from tests.rig import Rig, is_miss

RECORDS, PAYLOADS = Path("journal/00000001.seg"), Path("payloads/00000001.seg")
Damage = Callable[[Path, Path], None]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rig, Path]]:
    """An instance with a consumed directive, stopped, and its state folder as it was before the consume."""
    rig = Rig.create(tmp_path_factory.mktemp("lost") / "instance").start()
    agent, id = rig.enrol("worker-a"), rig.send()
    rig.kill()
    before = rig.folder.parent / "before"
    shutil.copytree(rig.state, before, ignore=shutil.ignore_patterns("*.sock"))
    rig.start()
    agent.close()
    assert agent.consume(id).status_code == 200
    rig.send(), rig.send()
    assert rig.stop() == 0
    yield rig, before
    rig.close()


def without(name: Path | str) -> Damage:
    def damage(state: Path, before: Path) -> None:
        place = state / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    return damage


def emptied(name: Path) -> Damage:
    return lambda state, before: os.truncate(state / name, 0)


def altered(name: Path) -> Damage:
    def damage(state: Path, before: Path) -> None:
        raw = bytearray((state / name).read_bytes())
        raw[len(raw) // 2] ^= 1
        (state / name).write_bytes(raw)

    return damage


def restored(name: Path) -> Damage:
    def damage(state: Path, before: Path) -> None:
        shutil.copyfile(before / name, state / name)

    return damage


def all_files_gone(state: Path, before: Path) -> None:
    shutil.rmtree(state)
    state.mkdir(mode=0o700)


DAMAGES: dict[str, Damage] = {
    "the whole folder gone": lambda state, before: shutil.rmtree(state),
    "the folder emptied": all_files_gone,
    "no format": without("format"),
    "no journal": without("journal"),
    "no record segment": without(RECORDS),
    "record segment emptied": emptied(RECORDS),
    "one bit of the records": altered(RECORDS),
    "no payloads": without("payloads"),
    "no payload segment": without(PAYLOADS),
    "payload segment emptied": emptied(PAYLOADS),
    "one bit of the payloads": altered(PAYLOADS),
    "older payloads": restored(PAYLOADS),
    "an older journal": restored(RECORDS),
    "no authority": without("ca"),
}


@pytest.mark.promise("P5")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_state_folder_that_is_not_whole_is_refused_and_left_as_it_is(
    stopped: tuple[Rig, Path], tmp_path: Path, damage: str
) -> None:
    rig, before = stopped
    folder = tmp_path / "instance"
    shutil.copytree(rig.folder, folder)
    DAMAGES[damage](folder / "state", before)
    found = contents(folder / "state")
    done = rig.cli("broker", "serve", str(folder / "lever.yaml"), expect=None)
    assert done.returncode in (1, 7), done.stderr
    assert done.stderr.startswith("error: "), "in words, not a traceback"
    assert "hint:" in done.stderr
    assert contents(folder / "state") == found, "nothing was started anew, nothing was mended"


def contents(state: Path) -> dict[str, bytes]:
    """Every file that matters: the lock's are for the moment alone."""
    files = (path for path in state.rglob("*") if path.is_file() and not path.name.startswith("lock"))
    return {str(path.relative_to(state)): path.read_bytes() for path in files}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB, for a state folder."""
    place = tmp_path / "small"
    place.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(place)]
    mounted = subprocess.run(argv, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no mounts here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def filled(small: Path) -> Path:
    """A file that leaves no room there; remove it to make some."""
    with (small / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            return small / "filler"


def made_on(small: Path, instance: Path) -> Rig:
    """An instance whose state lies on the small disk."""
    rig = Rig.create(instance)
    shutil.move(rig.state, small / "state")
    rig.state.symlink_to(small / "state")
    return rig


MOUNTS = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs takes root")


@pytest.mark.root
@MOUNTS
@pytest.mark.promise("P28", "P29", "P4")
def test_a_full_disk_stops_the_daemon_and_what_it_acknowledged_is_there_when_there_is_room(
    tmp_path: Path, small: Path
) -> None:
    rig = made_on(small, tmp_path / "instance")
    agent = rig.start().enrol("worker-a")
    ids = [rig.send() for _ in range(40)]
    filler, given = filled(small), []
    for id in ids:
        answer = agent.consume(id)
        if answer.status_code != 200:
            assert is_miss(answer), "what could not be written is not handed out, and does not say why"
            break
        given.append(id)
    else:
        pytest.fail("the disk was full and nothing noticed")
    assert rig.daemon
    assert rig.daemon.wait(timeout=30) == 1
    assert any("No space left on device" in line for line in rig.log)
    filler.unlink()
    rig.start()
    agent.close()
    states = {row["id"]: row["state"] for row in rig.listed()}
    assert {states[id] for id in given} <= {"consumed"}
    assert all(is_miss(agent.consume(id)) for id in given)
    assert agent.consume(ids[-1]).status_code == 200
    assert rig.send_raw(statement.encode(rig.statement())).status_code == 200
    rig.close()


@pytest.mark.root
@MOUNTS
@pytest.mark.promise("P28", "P23")
def test_a_call_whose_intent_finds_no_room_is_not_carried_out_and_its_act_is_not_spent(
    tmp_path: Path, small: Path
) -> None:
    rig = made_on(small, tmp_path / "instance")
    (beside := tmp_path / "beside").mkdir()
    servers = WATCHED.format(python=sys.executable, between=BETWEEN, fake=FAKE, folder=beside)
    rig.config.write_text(rig.config.read_text() + servers)
    house = Desk(rig.start()).open(wide_policy())
    agent, large = rig.enrol("worker-a"), {"text": "x" * 40_000}
    assert house.approve(asked(agent, "s__echo", large)).status_code == 200
    filler = filled(small)
    assert code(call(agent, "s__echo", large)) == "unavailable"
    assert rig.daemon
    assert rig.daemon.wait(timeout=30) == 1
    assert house.reached() == []
    filler.unlink()
    rig.start()
    agent.close()
    assert (house.reached(), house.facts(CallClaimed)) == ([], []), "nor by the start"
    assert code(call(agent, "s__echo", large)) == ""
    assert len(house.reached("echo")) == len(house.facts(CallClaimed)) == 1
    rig.close()
