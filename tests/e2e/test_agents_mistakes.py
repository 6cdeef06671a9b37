"""What goes wrong beside an agent: each heals by itself, or is told in one error with a way out that works.

Through the installed `lever` and a running broker.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from broker.wire.statement import Instruction
from tests.e2e.beside import CLOCK, HOUR, Beside, Cutter, told
from tests.rig import LEVER, Rig


@pytest.fixture
def beside(rig: Rig, tmp_path: Path) -> Beside:
    """A place for an agent with a name of its own."""
    return Beside(rig, tmp_path, f"agent-{uuid.uuid4().hex[:12]}")


# --- the folder -----------------------------------------------------------------------------------------------------


def test_a_half_written_identity_is_told_and_a_new_invite_heals_it(beside: Beside) -> None:
    beside.enrol()
    raw = beside.file.read_bytes()
    line_ends = [found.end() for found in re.finditer(b"\n", raw)]
    for size in sorted({0, *line_ends[:-1], *(end - 1 for end in line_ends)}):
        beside.file.write_bytes(raw[:size])
        hint = told(beside.quickly("inbox"), 7, "is not an identity file, or only part of one")
        assert beside.file.read_bytes() == raw[:size], "left as it is"
    (move,) = re.findall(r"^(mv '.*' '.*\.bad'), then enrol anew", hint)
    subprocess.run(["/bin/sh", "-c", move], check=True)
    assert beside.enrol().consumes()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def linked(path: Path) -> None:
    path.symlink_to(path.rename(path.parent.parent / "moved"))


def made_a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir(mode=0o700)


def opened(path: Path) -> None:
    path.chmod(0o644)


FILES: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "missing": (Path.unlink, 2, "found none"),
    "emptied": (emptied, 7, "is not an identity file"),
    "open to others": (opened, 7, "has mode 644, expected 600"),
    "a symbolic link": (linked, 7, "symbolic link"),
    "a folder": (made_a_folder, 7, "expected a regular file"),
}


@pytest.mark.parametrize("case", FILES)
def test_an_identity_file_that_is_something_else_is_told(beside: Beside, case: str) -> None:
    spoil, status, words = FILES[case]
    beside.enrol()
    spoil(beside.file)
    for command in (("inbox",), ("consume", "a"), ("check", "a"), ("renew",)):
        hint = told(beside.quickly(*command), status, words)
    if case == "open to others":
        assert "chmod 600" in hint
        beside.file.chmod(0o600)
    elif case != "missing":
        assert "enrol anew" in hint
        shutil.rmtree(beside.identity)
    assert (beside if case == "open to others" else beside.enrol()).consumes()


def test_a_folder_that_others_may_enter_is_told(beside: Beside) -> None:
    beside.enrol()
    beside.identity.chmod(0o755)
    hint = told(beside.run("inbox"), 7, "has mode 755, expected 700")
    subprocess.run(["/bin/sh", "-c", hint.partition(";")[0]], check=True)
    assert beside.consumes()


@pytest.mark.parametrize("name", ["next-enrol.key", "next-renew.key", "identity.pem.new", "lock"])
@pytest.mark.parametrize("spoil", [emptied, linked, made_a_folder, opened], ids=lambda spoil: spoil.__name__)
def test_what_lies_beside_an_identity_is_told_or_does_no_harm(
    beside: Beside, name: str, spoil: Callable[[Path], object]
) -> None:
    beside.enrol()
    path = beside.identity / name
    if not path.exists():
        path.write_bytes(b"what was here before\n")
        path.chmod(0o600)
    spoil(path)
    for command in (("renew", "--force"), ("enrol", "--bundle", beside.invite())):
        done = beside.quickly(*command)
        if done.status == 1:
            assert "run the same command again" in told(done, 1, "the identity folder can't be used", str(path))
            path.rmdir() if path.is_dir() else path.unlink()
            assert beside.quickly(*command).status == 0
        elif done.status:
            assert str(path) in told(done, 7)
    assert beside.recorded("agent_frozen") == []
    assert beside.consumes(), "the identity itself is whole"


# --- answers that are lost ------------------------------------------------------------------------------------------


@pytest.fixture
def cutter(rig: Rig) -> Iterator[Cutter]:
    with Cutter(rig.port) as made:
        yield made


def through(cutter: Cutter, beside: Beside) -> Beside:
    """Enrolled through the relay."""
    return beside.enrol(beside.invite(broker_url=cutter.url))


def test_an_answer_lost_at_enrolment_is_got_by_the_same_command(beside: Beside, cutter: Cutter) -> None:
    bundle = beside.invite(broker_url=cutter.url)
    cutter.cuts = 1
    hint = told(beside.run("enrol", "--bundle", bundle), 4, "gave no answer")
    assert "run the same command again within a minute" in hint
    assert cutter.cuts == 0
    assert len(beside.recorded("agent_enrolled")) == 1, "the broker had done it"
    beside.enrol(bundle)
    assert len(beside.recorded("agent_enrolled")) == 1
    assert beside.consumes()


def test_an_answer_lost_at_renewal_is_got_by_the_same_command(beside: Beside, cutter: Cutter) -> None:
    through(cutter, beside)
    cutter.cuts = 1
    before = beside.file.read_bytes()
    told(beside.run("renew", "--force"), 4, "gave no answer")
    assert len(beside.recorded("certificate_renewed")) == 1
    assert beside.file.read_bytes() == before
    assert beside.consumes(), "the old certificate serves until the new one is here"
    assert beside.run("renew", "--force").status == 0
    assert len(beside.recorded("certificate_renewed")) == 1
    assert beside.recorded("agent_frozen") == []
    assert beside.consumes()


def test_an_answer_lost_at_a_consume_is_asked_for_again_unseen(beside: Beside, cutter: Cutter) -> None:
    through(cutter, beside)
    id = beside.rig.send(beside.cn, action=Instruction("Once."))
    cutter.cuts = 1
    done = beside.run("consume", id)
    assert (done.status, cutter.cuts) == (0, 0), done.stderr
    assert "Once." in done.stdout
    assert len(beside.recorded("directive_consumed")) == 1


def test_an_answer_lost_at_every_try_is_got_by_the_command_in_the_hint(beside: Beside, cutter: Cutter) -> None:
    through(cutter, beside)
    id = beside.rig.send(beside.cn, action=Instruction("Once."))
    cutter.cuts = 4
    hint = told(beside.run("consume", id), 4, "whether it took place is unknown")
    command = hint.removeprefix("within a minute of the first try: lever agent ").split()
    done = beside.run(*command)
    assert done.status == 0, done.stderr
    assert "Once." in done.stdout
    assert beside.run("consume", id).status == 3, "and never again under another key"
    assert len(beside.recorded("directive_consumed")) == 1


# --- two at once, and time ------------------------------------------------------------------------------------------


@pytest.mark.promise("P35")
def test_processes_that_renew_at_once_make_one_renewal_and_all_go_on(beside: Beside) -> None:
    beside.enrol()
    beside.rewrite(-13 * HOUR)
    argv = [LEVER, "agent", "renew", "--json", "--identity", str(beside.identity)]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outcomes = [json.loads(process.communicate(timeout=60)[0])["outcome"] for process in running]
    assert sorted(outcomes) == ["renewed", "unchanged", "unchanged", "unchanged"]
    assert len(beside.recorded("certificate_renewed")) == 1
    assert beside.recorded("agent_frozen") == []
    assert beside.consumes()


def test_a_certificate_that_ended_while_the_broker_was_down_needs_an_invite(own_rig: Rig, tmp_path: Path) -> None:
    beside = Beside(own_rig, tmp_path, "late").enrol()
    own_rig.stop()
    hint = told(beside.run("renew", "--force"), 4, "can't be reached")
    assert "lever broker status" in hint
    beside.rewrite(-25 * HOUR)
    own_rig.start()
    for command in (("renew",), ("inbox",), ("consume", "a"), ("check", "a"), ("renew", "--loop")):
        hint = told(beside.run(*command), 3, "the certificate of late ended at", "only a new invite helps")
        assert hint.startswith("ask the operator for a new bundle (lever agent invite late), then: lever agent enrol")
    assert beside.enrol().consumes()


@pytest.fixture(scope="module")
def wrong_clock(tmp_path_factory: pytest.TempPathFactory) -> Callable[[timedelta], dict[str, str]]:
    """The environment of a process whose clock is off by so much."""
    if not shutil.which("cc") or os.uname().sysname != "Linux":
        pytest.skip("needs a C compiler, and LD_PRELOAD")
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], input=CLOCK.encode(), check=True)
    return lambda off: {"LD_PRELOAD": str(library), "CLOCK_OFFSET_S": str(int(off.total_seconds()))}


CLOCKS = {"behind": (-1000 * HOUR, "begins later"), "ahead": (1000 * HOUR, "has ended")}


@pytest.mark.parametrize("case", CLOCKS)
def test_a_clock_that_is_wrong_is_told_as_that(
    beside: Beside, wrong_clock: Callable[[timedelta], dict[str, str]], case: str
) -> None:
    off, words = CLOCKS[case]
    bundle = beside.invite()
    environment = wrong_clock(off)
    hint = told(beside.run("enrol", "--bundle", bundle, env=environment), 6, "by this machine's clock", words)
    assert "date -u" in hint
    beside.enrol(bundle)
    for command in (("inbox",), ("consume", "a"), ("renew", "--force")):
        assert "date -u" in told(beside.run(*command, env=environment), 6, "by this machine's clock", words)
    assert beside.consumes(), "with the clock set right, all is well"


@pytest.mark.parametrize("hours", [-0.03, 13])
def test_a_clock_that_is_a_little_wrong_does_no_harm(
    beside: Beside, wrong_clock: Callable[[timedelta], dict[str, str]], hours: float
) -> None:
    environment = wrong_clock(hours * HOUR)
    bundle = beside.invite()
    assert beside.run("enrol", "--bundle", bundle, env=environment).status == 0
    assert beside.run("renew", "--force", env=environment).status == 0
    id = beside.rig.send(beside.cn)
    assert beside.run("consume", id, env=environment).status == 0


# --- bundles --------------------------------------------------------------------------------------------------------


def test_a_bundle_used_twice_changes_nothing_here_and_is_refused_elsewhere(beside: Beside) -> None:
    bundle = beside.invite()
    beside.enrol(bundle)
    before = beside.file.read_bytes()
    done = beside.run("enrol", "--bundle", bundle)
    assert (done.status, beside.file.read_bytes()) == (0, before)
    assert "unchanged: " in done.stderr
    other = Beside(beside.rig, beside.folder / "other", beside.cn)
    other.folder.mkdir()
    hint = told(other.run("enrol", "--bundle", bundle), 3, "the ticket was used")
    assert f"lever agent invite {beside.cn}" in hint
    assert beside.consumes(), "and the first one is not disturbed"


def test_a_bundle_for_another_name_is_refused_and_its_ticket_stays_good(beside: Beside) -> None:
    bundle = beside.invite()
    renamed = beside.folder / "renamed.json"
    renamed.write_text(json.dumps(json.loads(bundle.read_text()) | {"agent_cn": "somebody-else"}))
    hint = told(beside.run("enrol", "--bundle", renamed), 3, "refused to enrol somebody-else", "is for another name")
    assert "lever agent invite somebody-else" in hint
    assert beside.enrol(bundle).consumes()


def test_a_bundle_of_another_agent_does_not_destroy_a_living_identity(beside: Beside) -> None:
    beside.enrol()
    before = beside.file.read_bytes()
    hint = told(beside.run("enrol", "--bundle", beside.invite("another")), 2, "holds the living identity of")
    assert "--identity DIR" in hint
    assert beside.file.read_bytes() == before


def test_a_bundle_of_another_instance_is_told_apart(beside: Beside, own_rig: Rig) -> None:
    theirs = Beside(own_rig, beside.folder / "theirs", beside.cn)
    theirs.folder.mkdir()
    bundle = theirs.invite()
    misled = theirs.folder / "misled.json"
    ours = f"https://127.0.0.1:{beside.rig.port}"
    misled.write_text(json.dumps(json.loads(bundle.read_text()) | {"broker_url": ours}))
    hint = told(beside.run("enrol", "--bundle", misled), 6, "is not the broker of this identity")
    assert hint.startswith("check the address")
    beside.enrol()
    before = beside.file.read_bytes()
    told(beside.run("enrol", "--bundle", bundle), 2, "holds the living identity of", "which has another CA")
    assert beside.file.read_bytes() == before
    assert beside.consumes()
    assert theirs.enrol(bundle).consumes(), "the ticket was not lost on the way"


def test_an_identity_at_the_broker_of_another_instance_is_told(beside: Beside, own_rig: Rig) -> None:
    """As after `lever init` in a new folder, on the same port, with the same name."""
    beside.enrol()
    raw = beside.file.read_bytes()
    ours, theirs = f":{beside.rig.port}\n".encode(), f":{own_rig.port}\n".encode()
    beside.file.write_bytes(raw.replace(ours, theirs))
    for command in (("inbox",), ("consume", "a"), ("renew", "--force")):
        hint = told(beside.run(*command), 6, "is not the broker of this identity")
        assert "ask the operator for a new invite" in hint
