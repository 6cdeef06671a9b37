"""Files that hold secrets: new, for their owner alone, and gone again if what fills them fails."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lever.exits import CliError, Exit
from lever.new_file import new_file


def test_it_is_for_the_owner_alone_from_the_start(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with new_file(tmp_path / "out") as file:
            assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600
            file.write(b"secret")
    finally:
        os.umask(before)
    assert (tmp_path / "out").read_bytes() == b"secret"


@pytest.mark.parametrize("kind", ["file", "folder", "link to a file", "dangling link"])
def test_it_never_takes_the_place_of_anything(tmp_path: Path, kind: str) -> None:
    path, victim = tmp_path / "out", tmp_path / "victim"
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("mine")
    else:
        path.symlink_to(victim)
    if kind == "link to a file":
        victim.write_text("mine")
    with pytest.raises(CliError, match="nothing was changed") as raised, new_file(path):
        raise AssertionError("opened")
    assert raised.value.exit is Exit.REFUSED
    assert victim.exists() == (kind == "link to a file")
    assert os.path.lexists(path)


def test_it_is_gone_if_what_fills_it_fails(tmp_path: Path) -> None:
    def fill() -> None:
        with new_file(tmp_path / "out") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="can't be written: no such file"), new_file(tmp_path / "gone" / "out"):
        raise AssertionError("opened")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    def fill() -> None:
        with new_file(tmp_path / "out") as file, Path("/dev/full").open("wb") as full:
            os.dup2(full.fileno(), file.fileno())
            file.write(b"x" * 100_000)

    with pytest.raises(CliError, match="can't be written: no space left"):
        fill()
    assert not (tmp_path / "out").exists()
