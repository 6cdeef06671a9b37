"""The operator's socket: private from its first instant, and never taken from somebody else."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from broker.doors.socket import bind_operator_socket, peer_uid
from broker.errors import Fatal


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("s")
    folder.chmod(0o700)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.promise("P34")
def test_only_its_owner_may_use_it_and_it_listens(folder: Path) -> None:
    path = folder / "operator.sock"
    before = os.umask(0)  # the most careless parent process
    try:
        listener = bind_operator_socket(path)
    finally:
        assert os.umask(before) == 0
    with listener, socket.socket(socket.AF_UNIX) as client:
        assert mode(path) == 0o600
        client.connect(str(path))
        accepted, _ = listener.accept()
        with accepted:
            assert peer_uid(accepted) == peer_uid(client) == os.getuid()


@pytest.mark.promise("P34")
def test_nobody_ever_sees_it_with_another_mode(folder: Path) -> None:
    path, seen, stop = folder / "operator.sock", set[int](), threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                seen.add(mode(path))
            except FileNotFoundError:
                continue

    watcher = threading.Thread(target=look)
    before = os.umask(0)
    watcher.start()
    try:
        for _ in range(300):
            bind_operator_socket(path).close()
        while not seen:
            continue
    finally:
        stop.set()
        watcher.join()
        os.umask(before)
    assert seen == {0o600}


@pytest.mark.promise("P34")
def test_the_mode_is_right_at_the_system_call_that_makes_it(folder: Path) -> None:
    """Without luck: a process that ends right after bind(2) leaves the file as that call made it."""
    program = (
        "import os, socket, sys; from pathlib import Path; from broker.doors import socket as doors\n"
        "class Stopped(socket.socket):\n"
        "    def bind(self, address): super().bind(address); os._exit(7)\n"
        "doors.socket.socket = Stopped; os.umask(0); doors.bind_operator_socket(Path(sys.argv[1]))"
    )
    path = folder / "operator.sock"
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 7
    assert mode(path) == 0o600


@pytest.mark.promise("P34")
@pytest.mark.parametrize("open_to", [0o001, 0o004, 0o010, 0o020, 0o040, 0o002])
def test_a_folder_that_others_may_enter_is_refused(folder: Path, open_to: int) -> None:
    folder.chmod(0o700 | open_to)
    with pytest.raises(Fatal, match=f"mode {0o700 | open_to:04o}, expected 0700") as caught:
        bind_operator_socket(folder / "operator.sock")
    assert caught.value.hint == f"chmod 700 {folder}"
    assert list(folder.iterdir()) == []


@pytest.mark.promise("P34")
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 12345, -1)
    with pytest.raises(Fatal, match="belongs to uid 12345, expected 0"):
        bind_operator_socket(folder / "operator.sock")


def test_a_folder_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(Fatal, match="No such file or directory") as caught:
        bind_operator_socket(folder / "none" / "operator.sock")
    assert caught.value.hint == f"mkdir -m 700 {folder / 'none'}"


@pytest.mark.promise("P34")
def test_a_socket_that_somebody_listens_on_is_left_alone(folder: Path) -> None:
    path = folder / "operator.sock"
    with bind_operator_socket(path) as first:
        with pytest.raises(Fatal, match=f"another process listens on the operator socket {path}"):
            bind_operator_socket(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            first.accept()[0].close()


def test_a_socket_whose_queue_is_full_is_somebodys(folder: Path) -> None:
    path = folder / "operator.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(Fatal, match="another process listens"):
            bind_operator_socket(path)
    assert path.is_socket()


def test_a_socket_that_nobody_listens_on_is_replaced(folder: Path) -> None:
    path = folder / "operator.sock"
    for _ in range(2):
        with bind_operator_socket(path), closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(str(path))
        assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "symlink", "dangling symlink"])
def test_what_is_no_socket_is_left_alone(folder: Path, kind: str) -> None:
    path, elsewhere = folder / "operator.sock", folder / "elsewhere"
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case "symlink":
            elsewhere.write_text("precious")
            path.symlink_to(elsewhere)
        case _:
            path.symlink_to(elsewhere)
    before = path.lstat()
    with pytest.raises(Fatal, match="is not a socket; it was left alone"):
        bind_operator_socket(path)
    assert path.lstat() == before


def test_a_path_that_is_too_long_is_told_how_long_it_may_be(folder: Path) -> None:
    path = folder / ("x" * 200)
    with pytest.raises(Fatal, match=rf"has {len(str(path))} bytes, the system takes 10[37]") as caught:
        bind_operator_socket(path)
    assert "socket: " in caught.value.hint


def test_a_path_as_long_as_it_may_be_is_taken(folder: Path) -> None:
    limit = 107 if sys.platform == "linux" else 103
    path = folder / ("x" * (limit - len(str(folder)) - 1))
    with bind_operator_socket(path):
        assert mode(path) == 0o600
