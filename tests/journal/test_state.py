"""One state folder, one owner, one instance, one broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.errors import Fatal
from broker.journal.create import create
from broker.journal.disk import RealDisk
from broker.journal.state import StateFolder, read_instance
from broker.wire.names import Instance
from tests.fakes.fake_disk import PowerCutError, at_most
from tests.journal import setting
from tests.journal.setting import DEMO

HOLD = """
import sys
from pathlib import Path
from broker.journal.state import StateFolder
with StateFolder.open(Path(sys.argv[1]), "demo"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process_holds(state: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", HOLD, str(state)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def refusal(path: Path, instance: str = "demo") -> Fatal:
    with pytest.raises(Fatal) as caught:
        StateFolder.open(path, Instance(instance))
    assert caught.value.hint
    return caught.value


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A furnished state folder that nobody holds."""
    with setting.new_state(tmp_path / "state") as folder:
        return folder.path


@pytest.mark.promise("P34")
def test_a_new_folder_is_its_owners_alone(state: Path) -> None:
    folders = [state, state / "journal", state / "payloads", state / "ca"]
    assert [path.stat().st_mode & 0o777 for path in folders] == [0o700] * 4
    files = [path for path in state.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.relative_to(state).as_posix() for path in files} == {
        "format",
        "lock",
        "lock.pid",
        "head",
        "journal/00000001.seg",
        "payloads/00000001.seg",
    }


def test_what_is_opened_says_where_things_are(state: Path) -> None:
    with StateFolder.open(state, DEMO) as folder:
        assert folder.instance == "demo"
        assert {folder.journal, folder.payloads, folder.ca} == {state / name for name in ("journal", "payloads", "ca")}
        assert folder.operator_socket == state / "operator.sock"
    assert read_instance(state) == "demo"


@pytest.mark.promise("P34")
def test_a_second_broker_in_another_process_is_refused_and_told_who_holds_it(state: Path) -> None:
    with another_process_holds(state) as holder:
        assert refusal(state).why == f"another broker (pid {holder.pid}) holds this state folder: {state}"


@pytest.mark.promise("P34")
def test_a_second_broker_in_the_same_process_is_refused(state: Path) -> None:
    with StateFolder.open(state, DEMO):
        assert f"(pid {os.getpid()})" in refusal(state).why
    StateFolder.open(state, DEMO).close()


@pytest.mark.promise("P34")
def test_after_kill_9_of_the_holder_the_folder_is_free(state: Path) -> None:
    with another_process_holds(state) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        StateFolder.open(state, DEMO).close()


def test_without_a_readable_pid_the_refusal_names_none(state: Path) -> None:
    with StateFolder.open(state, DEMO):
        (state / "lock.pid").write_text("1\x1b[31m\n")
        assert refusal(state).why == f"another broker holds this state folder: {state}"
        (state / "lock.pid").unlink()
        assert refusal(state).why == f"another broker holds this state folder: {state}"


def test_the_folder_of_another_instance_names_both(state: Path) -> None:
    why = refusal(state, "production").why
    assert "instance demo" in why
    assert "instance production" in why


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lever-state 2\ninstance demo\n", "newer format 2"),
        ("lever-state 2\nsomething quite different\n", "newer format 2"),
        ("lever-state 999\n", "newer format 999"),
        ("lever-state 1\n", "damaged"),
        ("lever-state 1\ninstance demo", "damaged"),
        ("lever-state 1\ninstance demo\nmore\n", "damaged"),
        ("lever-state 1\ninstance Demo\n", "damaged"),
        ("lever-state 1\ninstance \x1b[31m\n", "damaged"),
        ("lever-state 0\ninstance demo\n", "damaged"),
        ("lever-state one\ninstance demo\n", "damaged"),
        ("", "damaged"),
        ("\x00" * 100, "damaged"),
    ],
    ids=range(12),
)
def test_a_format_file_that_is_not_ours(state: Path, text: str, words: str) -> None:
    (state / "format").write_text(text)
    assert words in refusal(state).why
    with pytest.raises(Fatal, match=words):
        read_instance(state)


def test_a_format_file_that_is_no_text_is_damaged(state: Path) -> None:
    (state / "format").write_bytes(b"\xff\xfe" * 20)
    assert "damaged" in refusal(state).why


CHANGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("no folder", lambda state: state.rename(state.with_name("elsewhere")), "there is no folder"),
    ("no format file", lambda state: (state / "format").unlink(), "is no state folder"),
    ("no journal folder", lambda state: (state / "journal").rename(state / "old"), "there is no folder"),
    ("open to the group", lambda state: state.chmod(0o750), "expected mode 0700, found 0750"),
    ("open to the world", lambda state: state.chmod(0o701), "expected mode 0700, found 0701"),
    ("journal open", lambda state: (state / "journal").chmod(0o755), "expected mode 0700, found 0755"),
    ("payloads open", lambda state: (state / "payloads").chmod(0o711), "expected mode 0700, found 0711"),
    ("ca open", lambda state: (state / "ca").chmod(0o770), "expected mode 0700, found 0770"),
]


@pytest.mark.promise("P34")
@pytest.mark.parametrize(("change", "words"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_a_folder_that_is_not_as_it_was_made(state: Path, change: Callable[[Path], object], words: str) -> None:
    change(state)
    assert words in refusal(state).why


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    assert "is not a folder" in refusal(tmp_path / "state").why


def test_a_new_folder_goes_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    with StateFolder.create(tmp_path / "state", DEMO):
        pass
    with pytest.raises(Fatal, match="is not empty"):
        StateFolder.create(tmp_path / "state", DEMO)
    with pytest.raises(Fatal, match="No such file or directory"):
        StateFolder.create(tmp_path / "none" / "state", DEMO)


@pytest.mark.promise("P5")
def test_a_journal_is_made_once(tmp_path: Path) -> None:
    with setting.new_state(tmp_path / "state") as folder:
        before = {path: path.read_bytes() for path in folder.path.glob("*/*.seg")}
        with pytest.raises(Fatal, match="is not empty"):
            create(folder, RealDisk(), setting.CA_DIGEST, setting.CREATED_AT)
        (folder.journal / "00000001.seg").unlink()
        with pytest.raises(Fatal, match="is not empty"):
            create(folder, RealDisk(), setting.CA_DIGEST, setting.CREATED_AT)
        assert list(folder.path.glob("*/*.seg")) == [path for path in before if path.parent.name == "payloads"]


@pytest.mark.promise("P5")
def test_a_folder_without_its_journal_is_not_started_as_an_empty_one(tmp_path: Path) -> None:
    with StateFolder.create(tmp_path / "state", DEMO) as folder, pytest.raises(Fatal, match="no segment at all"):
        setting.read(folder)


@pytest.mark.parametrize("names_kept", [False, True])
def test_a_power_cut_while_a_journal_is_made_leaves_it_whole_or_absent(tmp_path: Path, names_kept: bool) -> None:
    with StateFolder.create(tmp_path / "state", DEMO) as folder:
        whole = setting.fake_journal(folder)
        for at in range(1, len(whole.calls) + 1):
            disk = setting.empty_disk(folder)
            disk.faults = {at: PowerCutError()}
            with pytest.raises(PowerCutError):
                create(folder, disk, setting.CA_DIGEST, setting.CREATED_AT)
            for keep in (0, 10, 1 << 20):
                after = disk.crash(at_most(keep), names_kept=names_kept)
                if after.names(folder.journal) == ["00000001.seg"]:
                    assert len(setting.read(folder, after)[1]) == 1
                else:
                    with pytest.raises(Fatal):
                        setting.read(folder, after)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user takes root")
def test_another_users_folder_is_refused(state: Path) -> None:
    os.chown(state, 65534, 65534)
    why = refusal(state).why
    assert "belongs to user id 65534" in why
    assert "user id 0" in why


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_refused(state: Path) -> None:
    (state / "lock").unlink()
    state.chmod(0o500)
    assert "Permission denied" in refusal(state).why
