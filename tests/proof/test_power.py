"""The power fails under a busy daemon: what was acknowledged had reached the medium."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof import power
from tests.proof.forge import Forge
from tests.proof.power import CannotMount, Medium

CUTS = 12
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting an ext4 takes root"),
]


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Medium]:
    try:
        mounting = power.medium(tmp_path)
        made = mounting.__enter__()
    except CannotMount as why:
        pytest.skip(f"no ext4 on a loop device here: {why}")
    yield made
    mounting.__exit__(None, None, None)


@pytest.mark.promise("P4", "P5", "P28")
def test_what_clients_were_told_survives_power_cuts(forge: Forge, instance: Path, seed: int, medium: Medium) -> None:
    figures = power.cut(forge, instance, seed, medium, CUTS)
    print(figures)
    assert not figures.violations, "\n".join([str(figures), *figures.violations])
    assert figures.acknowledged > CUTS, f"{figures}: hardly anybody was there"
    assert figures.executions, f"{figures}: no tool was called"


@pytest.mark.promise("P5")
def test_an_instance_that_was_just_made_is_there_after_a_power_cut(forge: Forge, medium: Medium) -> None:
    made = forge.run("init", str(medium.place / "new"), "--name", "demo", "--make-keys", cwd=medium.place.parent)
    assert made.status == 0, made.stderr
    medium.cut(log_flushed=False)
    medium.unmount()
    medium.mount()
    folder = medium.place / "new"
    verified = forge.run("journal", "verify", str(folder / "lever.yaml"), cwd=medium.place.parent)
    assert verified.status == 0, verified.stderr
    assert "operator@demo" in (folder / "allowed_signers").read_text()
    for number in (1, 2):
        assert "PRIVATE KEY" in (folder / "keys" / f"operator-{number}").read_text()
        assert "ssh-ed25519" in (folder / "keys" / f"operator-{number}.pub").read_text()


def test_what_was_not_synced_is_gone_after_a_cut(medium: Medium) -> None:
    synced, not_synced = medium.place / "synced", medium.place / "not-synced"
    for path in (synced, not_synced):
        path.write_text("here")
    with synced.open() as file:
        os.fsync(file.fileno())
    folder = os.open(medium.place, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    with synced.open("a") as file:
        file.write(" and more")
    medium.cut(log_flushed=False)
    with pytest.raises(OSError, match="Input/output error"):
        (medium.place / "late").write_text("no")
    medium.unmount()
    medium.mount()
    assert synced.read_text() == "here"
    assert not not_synced.exists() or not_synced.read_text() == ""
