"""Operators' mistakes: each is made for real, found by `lever doctor`, and mended by following the hint it gives.

What the broker meets as well is told by `lever directive selftest`, or by `lever broker serve` where it can't start.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lever.exits import Exit
from tests.cli.mistakes import RUNNING, Mistake, set_in_the_configuration
from tests.cli.scene import Scene, end, new_scene, runs_as_nobody


@pytest.fixture(scope="module")
def shared() -> Iterator[Scene]:
    scene = new_scene(as_nobody=runs_as_nobody())
    scene.start()
    yield scene
    end(scene)


@pytest.fixture
def running(shared: Scene) -> Iterator[Scene]:
    """A scene with a running broker, put back afterwards whatever the test did to its files."""
    copy = shared.place / "copy"
    mine = ("allowed_signers", "lever.yaml", "keys")
    argv = ["cp", "-a", *(str(shared.rig.folder / name) for name in mine)]
    copy.mkdir()
    subprocess.run([*argv, str(copy)], check=True)
    with ExitStack() as shared.stack:
        yield shared
    shared.env.clear()
    for name in (*mine, ".git", "allowed_signers.old"):
        subprocess.run(["rm", "-rf", str(shared.rig.folder / name)], check=True)
    subprocess.run(["cp", "-a", *(str(copy / name) for name in mine), str(shared.rig.folder)], check=True)
    subprocess.run(["rm", "-rf", str(copy)], check=True)


@pytest.fixture
def stopped(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A scene of its own, without a broker yet; of root, where there is one, unless it is asked for another."""
    scene = new_scene(as_nobody=getattr(request, "param", False) and runs_as_nobody())
    yield scene
    end(scene)


def made(scene: Scene, mistake: Mistake) -> None:
    if mistake.unprivileged and scene.is_root:
        pytest.skip("root may do everything, and there is no setpriv here to become nobody")
    mistake.make(scene)


def the_one(found: list[dict[str, str]], mistake: Mistake) -> dict[str, str]:
    """Doctor's finding for this mistake. Others may follow from it."""
    (told,) = [check for check in found if mistake.said in check["text"]]
    assert told["level"] == mistake.level
    return told


@pytest.mark.promise("P12")
@pytest.mark.parametrize("name", RUNNING)
def test_a_mistake_is_found_told_apart_and_mended_by_its_hint(running: Scene, name: str) -> None:
    mistake = RUNNING[name]
    made(running, mistake)
    found = running.doctor()
    told = the_one(found, mistake)
    others = [one for other, one in RUNNING.items() if other != name]
    assert not [one.said for one in others if one.said in told["text"] and one.said not in mistake.said]
    tested = running.lever("directive", "selftest")
    assert mistake.selftest in tested.stdout + tested.stderr
    passes = mistake.passes or not mistake.selftest or mistake.level == "warn"
    assert (tested.returncode == 0) is passes, tested.stderr
    assert "hint:  lever directive selftest" not in tested.stderr, "a hint that leads in a circle"
    mistake.mend(running, told["hint"])
    assert running.doctor() == []
    if mistake.selftest:
        assert running.lever("directive", "selftest").returncode == 0


def gone(scene: Scene) -> None:
    scene.rig.state.rename(scene.place / "backup")


def restored(scene: Scene, hint: str) -> None:
    assert hint.startswith("restore it from a backup")
    (scene.place / "backup").rename(scene.rig.state)


def on_a_small_disk(scene: Scene) -> None:
    """Put the state folder on a file system of its own."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting takes root, and Linux")
    gone(scene)
    scene.rig.state.mkdir(mode=0o700)
    argv = ["mount", "-t", "tmpfs", "-o", "size=80m,mode=700", "tmpfs", str(scene.rig.state)]
    mounted = subprocess.run(argv, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no mounts here: {mounted.stderr.strip()}")
    scene.stack.callback(subprocess.run, ["umount", str(scene.rig.state)], check=True)
    scene.stack.callback(scene.rig.close)
    subprocess.run(["cp", "-a", f"{scene.place}/backup/.", str(scene.rig.state)], check=True)


def read_only(scene: Scene) -> None:
    on_a_small_disk(scene)
    subprocess.run(["mount", "-o", "remount,ro", str(scene.rig.state)], check=True)


def filled(left_bytes: int) -> Callable[[Scene], None]:
    def fill(scene: Scene) -> None:
        on_a_small_disk(scene)
        (scene.rig.state / "lock.pid").unlink()  # to be made anew it takes a block, as the next segment would
        disk = os.statvfs(scene.rig.state)
        with (scene.rig.state / "core").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - left_bytes)

    return fill


def emptied(scene: Scene, hint: str) -> None:
    """The largest file that the command of the hint shows."""
    shown = [Path(line.split("\t")[1]) for line in scene.sh(hint).splitlines()]
    largest = [path for path in shown if path.is_file()][-1]
    assert largest.name == "core"
    largest.unlink()


def given_away(scene: Scene) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    subprocess.run(["chown", "-R", "65534", str(scene.rig.state)], check=True)


STOPPED = {
    "no state folder": Mistake(gone, "state: no such file", restored, serve="there is no folder"),
    "the state folder of another user": Mistake(
        given_away, "belongs to uid 65534", serve="belongs to user id 65534", level="warn"
    ),
    "a state folder that can't be written": Mistake(
        lambda scene: scene.rig.state.chmod(0o500), "can't be written by its owner", serve="Permission denied",
        unprivileged=True,
    ),
    "a read-only file system": Mistake(read_only, "is mounted read-only", serve="Read-only file system"),
    "a file system with little room": Mistake(filled(40 << 20), "with 40 MiB left", emptied, level="warn"),
    "a full file system": Mistake(filled(0), "with 0 MiB left", emptied, serve="No space left on device"),
}  # fmt: skip


SOCKET_TOO_LONG = "expected a socket path of at most"
HELD = "holds the state folder, but"
AHEAD_OF_CLOCK = "the broker's journal knows a later time than its clock"
CHANGED = "when the broker started"
STOPPED_BY_HAND = "the emergency stop is on since"  # tests/authority/test_cli.py
NOT_SHOWN, SHOWN = "its sandbox does not show", "which is the broker's own"  # tests/cli/test_doctor.py
ALL = (*RUNNING.values(), *STOPPED.values())
SAID = [*(mistake.said for mistake in ALL), SOCKET_TOO_LONG, HELD, AHEAD_OF_CLOCK, CHANGED]
SAID += [STOPPED_BY_HAND, NOT_SHOWN, SHOWN]


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    ("stopped", "name"), [(mistake.unprivileged, name) for name, mistake in STOPPED.items()],
    indirect=["stopped"], ids=STOPPED,
)  # fmt: skip
def test_a_mistake_with_the_state_folder_is_found_and_mended_by_its_hint(stopped: Scene, name: str) -> None:
    mistake = STOPPED[name]
    made(stopped, mistake)
    told = the_one([check for check in stopped.doctor() if check["about"] == "state folder"], mistake)
    if mistake.serve:
        served = stopped.lever("broker", "serve")
        assert served.returncode != 0
        assert mistake.serve in served.stderr
        assert "hint:  " in served.stderr
    mistake.mend(stopped, told["hint"])
    stopped.start()
    assert stopped.doctor() == []


@pytest.mark.promise("P12")
def test_a_socket_path_that_is_too_long_is_told_by_init_serve_and_doctor(stopped: Scene) -> None:
    deep = stopped.rig.folder / ("d" * 60) / ("e" * 60)
    made = stopped.lever("init", str(deep), "--name", "demo", "--make-keys", "--listen", "127.0.0.1:0")
    assert made.returncode == 0
    assert f"warning: {SOCKET_TOO_LONG}" in made.stderr
    assert "socket: ~/.lever/demo.sock" in made.stderr
    served = stopped.lever("broker", "serve", str(deep))
    assert served.returncode != 0
    assert "operator socket's path has" in served.stderr
    assert "hint:  mkdir -m 700 -p ~/.lever; then set in lever.yaml, in the operator block: socket: " in served.stderr
    (told,) = stopped.doctor(deep)
    assert SOCKET_TOO_LONG in told["text"]
    stopped.sh(told["hint"])
    set_in_the_configuration(stopped, told["hint"])
    stopped.rig.folder = deep
    stopped.start()
    assert stopped.doctor() == []


@pytest.mark.promise("P12")
def test_a_second_daemon_on_a_state_folder_is_told_by_serve_and_doctor(stopped: Scene) -> None:
    stopped.start()
    assert stopped.rig.daemon
    first = stopped.rig.daemon.pid
    second = stopped.rig.folder / "second.yaml"
    second.write_text(stopped.rig.config.read_text())
    stopped.edit(second, r"^listen: .*", "listen: 127.0.0.1:0")
    stopped.edit(second, r"^  # socket: .*", "  socket: ~/second.sock")
    stopped.home.chmod(0o700)
    served = stopped.lever("broker", "serve", str(second))
    assert served.returncode != 0
    assert f"another broker (pid {first}) holds this state folder" in served.stderr
    assert f"hint:  stop that broker first: kill {first}" in served.stderr
    (told,) = stopped.doctor(second)
    assert f"process {first} {HELD}" in told["text"]
    kill, serve = told["hint"].split("; once it has ended: ")
    stopped.sh(kill)
    assert stopped.rig.daemon.wait(30) == 0
    assert serve == f"lever broker serve {second}"
    stopped.rig.folder.joinpath("lever.yaml").write_text(second.read_text())
    stopped.start()
    assert stopped.doctor(second) == []


@pytest.mark.promise("P12")
def test_a_journal_from_the_future_is_mended_by_a_right_clock_or_by_accepting_it(stopped: Scene) -> None:
    stopped.env["CLOCK_AHEAD_S"] = "3600"
    stopped.start()
    assert stopped.lever("directive", "selftest").returncode == 0
    stopped.rig.stop()
    del stopped.env["CLOCK_AHEAD_S"]
    stopped.start()
    (told,) = stopped.doctor()
    assert AHEAD_OF_CLOCK in told["text"]
    tested = stopped.lever("directive", "selftest")
    assert tested.returncode != 0
    assert "the journal is 3" in tested.stdout
    assert "ahead of the clock" in tested.stdout
    stopped.rig.stop()
    hint = f"; or if the clock is right, stop the broker, then: lever broker serve {stopped.rig.config} --accept-clock"
    assert told["hint"].endswith(hint)
    stopped.start("--accept-clock")
    assert stopped.doctor() == []


@pytest.mark.promise("P12")
@pytest.mark.parametrize("seconds", [600, -600])
def test_a_signed_operation_at_another_time_than_the_brokers_is_refused_for_the_clock(
    running: Scene, seconds: int
) -> None:
    running.env["CLOCK_AHEAD_S"] = str(seconds)
    done = running.lever("directive", "list")
    assert done.returncode == Exit.REFUSED
    assert "from the broker's clock" in done.stderr
    assert "hint:  compare the clocks: lever doctor" in done.stderr


def test_the_page_tells_each_mistake_in_doctors_words() -> None:
    page = (Path(__file__).parents[2] / "docs" / "OPERATING.md").read_text()
    table = page.split("## What doctor says and what mends it")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \|", table, re.MULTILINE)
    assert rows
    assert [row for row in rows if not any(row in said for said in SAID)] == [], "said by doctor in no test"
    assert [said for said in SAID if not any(row in said for row in rows)] == [], "missing on the page"


def test_a_configuration_that_the_broker_does_not_have_yet_is_told_until_it_starts_anew(stopped: Scene) -> None:
    stopped.start()
    assert stopped.doctor() == []
    stopped.edit(stopped.rig.config, "^limits: {", "limits: {ticket_s: 601, ")
    (finding,) = stopped.doctor()
    assert (finding["level"], CHANGED in finding["text"]) == ("warn", True)
    assert finding["hint"].startswith("stop the broker, then: lever broker serve")
    stopped.rig.stop()
    stopped.start()
    assert stopped.doctor() == []
