"""One contract for both disks: what the fake is trusted for, the real one does."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.journal.disk import Disk, RealDisk, refusal, write_all
from tests.fakes.fake_disk import FakeDisk, Short

DISKS = ["real", "fake"]


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk() if request.param == "real" else FakeDisk([tmp_path])


@contextmanager
def held(disk: Disk, fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        disk.close(fd)


def put(disk: Disk, path: Path, data: bytes) -> None:
    with held(disk, disk.create(path)) as fd:
        write_all(disk, fd, data)
        disk.sync(fd)


def content(disk: Disk, path: Path) -> bytes:
    with held(disk, disk.read(path)) as fd:
        return disk.read_at(fd, 0, disk.size(path) + 1)


def test_a_new_file_is_empty_and_its_name_is_taken(disk: Disk, tmp_path: Path) -> None:
    with held(disk, disk.create(tmp_path / "a")):
        assert disk.size(tmp_path / "a") == 0
        with pytest.raises(FileExistsError):
            disk.create(tmp_path / "a")


def test_writes_go_behind_the_end_also_after_it_was_opened_again(disk: Disk, tmp_path: Path) -> None:
    put(disk, tmp_path / "a", b"one")
    with held(disk, disk.append(tmp_path / "a")) as fd:
        assert disk.write(fd, memoryview(b"two")) == 3
        assert disk.read_at(fd, 0, 100) == b"onetwo"
        assert disk.write(fd, b"!") == 1
    assert content(disk, tmp_path / "a") == b"onetwo!"


def test_a_part_can_be_read_and_nothing_behind_the_end(disk: Disk, tmp_path: Path) -> None:
    put(disk, tmp_path / "a", b"abcdef")
    with held(disk, disk.read(tmp_path / "a")) as fd:
        assert disk.read_at(fd, 2, 3) == b"cde"
        assert disk.read_at(fd, 4, 100) == b"ef"
        assert disk.read_at(fd, 6, 1) == b""
        assert disk.read_at(fd, 99, 1) == b""


def test_a_cut_is_where_the_next_write_goes(disk: Disk, tmp_path: Path) -> None:
    put(disk, tmp_path / "a", b"abcdef")
    with held(disk, disk.append(tmp_path / "a")) as fd:
        disk.truncate(fd, 2)
        assert disk.size(tmp_path / "a") == 2
        disk.write(fd, b"X")
    assert content(disk, tmp_path / "a") == b"abX"


def test_a_rename_replaces_and_an_open_file_keeps_its_bytes(disk: Disk, tmp_path: Path) -> None:
    put(disk, tmp_path / "old", b"old")
    put(disk, tmp_path / "new", b"new")
    with held(disk, disk.append(tmp_path / "new")) as fd:
        disk.rename(tmp_path / "new", tmp_path / "old")
        disk.sync_dir(tmp_path)
        disk.write(fd, b"er")
    assert disk.names(tmp_path) == ["old"]
    assert content(disk, tmp_path / "old") == b"newer"


def test_names_are_sorted_and_go_when_removed(disk: Disk, tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        put(disk, tmp_path / name, b"")
    assert disk.names(tmp_path) == ["a", "b", "c"]
    disk.remove(tmp_path / "b")
    assert disk.names(tmp_path) == ["a", "c"]


@pytest.mark.parametrize("call", ["append", "read", "size", "remove", "rename"])
def test_what_is_not_there_is_named(disk: Disk, tmp_path: Path, call: str) -> None:
    arguments = (tmp_path / "none", tmp_path / "other") if call == "rename" else (tmp_path / "none",)
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)(*arguments)


@pytest.mark.parametrize("call", ["names", "sync_dir"])
def test_a_folder_that_is_not_there_is_named(disk: Disk, tmp_path: Path, call: str) -> None:
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)(tmp_path / "none")


def test_who_only_reads_can_not_write_and_who_closed_can_do_nothing(disk: Disk, tmp_path: Path) -> None:
    put(disk, tmp_path / "a", b"a")
    fd = disk.read(tmp_path / "a")
    with pytest.raises(OSError, match="descriptor"):
        disk.write(fd, b"x")
    disk.close(fd)
    for call in (disk.sync, disk.close):
        with pytest.raises(OSError, match="descriptor"):
            call(fd)


@pytest.mark.promise("P30")
def test_a_real_file_is_its_owners_alone_and_no_link_is_followed(tmp_path: Path) -> None:
    disk = RealDisk()
    put(disk, tmp_path / "a", b"a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for call in (disk.append, disk.read):
        with pytest.raises(OSError, match="symbolic"):
            call(tmp_path / "link")


def test_a_short_write_is_continued(tmp_path: Path) -> None:
    disk = FakeDisk([tmp_path], {2: Short(1), 3: Short(2)})
    put(disk, tmp_path / "a", b"abcdef")
    assert content(disk, tmp_path / "a") == b"abcdef"
    assert disk.calls == ["create", "write", "write", "write", "sync"]


def test_a_disk_that_takes_nothing_is_given_up(tmp_path: Path) -> None:
    disk = FakeDisk([tmp_path], {2: Short(1), 3: Short(0)})
    with pytest.raises(OSError, match="takes no more bytes"):
        put(disk, tmp_path / "a", b"abcdef")


@pytest.mark.parametrize(
    ("kept", "left"), [(0, b"synced"), (3, b"syncedbeh"), (6, b"syncedbehind")], ids=["lost", "torn", "kept"]
)
def test_a_crash_keeps_what_was_synced_and_any_part_of_the_rest(tmp_path: Path, kept: int, left: bytes) -> None:
    disk = FakeDisk([tmp_path])
    put(disk, tmp_path / "a", b"synced")
    disk.sync_dir(tmp_path)
    disk.write(disk.append(tmp_path / "a"), b"behind")
    assert disk.crash(lambda unsynced: kept, names_kept=False).content(tmp_path / "a") == left


@pytest.mark.parametrize("names_kept", [False, True])
def test_a_crash_may_lose_a_name_whose_folder_was_not_synced(tmp_path: Path, names_kept: bool) -> None:
    disk = FakeDisk([tmp_path])
    put(disk, tmp_path / "a", b"a")
    disk.sync_dir(tmp_path)
    disk.rename(tmp_path / "a", tmp_path / "b")
    assert disk.crash(lambda n: n, names_kept=names_kept).names(tmp_path) == (["b"] if names_kept else ["a"])


@pytest.mark.parametrize(
    ("number", "helps"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "free space"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "must belong to the broker's user"),
        (errno.ENOENT, "check the path"),
        (errno.EMFILE, "open files"),
        (errno.EIO, "disk errors"),
    ],
)
def test_a_refusal_has_the_systems_words_and_something_to_do(tmp_path: Path, number: int, helps: str) -> None:
    words = os.strerror(number)
    why = refusal("write to the journal", tmp_path, OSError(number, words))
    assert why.why == f"cannot write to the journal in {tmp_path}: {words}"
    assert helps in why.hint
