"""A head that is kept elsewhere: an older state folder, whole as it is, is told from the newest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import Rig

KEPT = """
kept_head:
  keep: [sh, -c, 'cat > kept.new && mv kept.new kept']
  fetch: [sh, -c, 'if test -e kept; then cat kept; fi']
  every: 1s
"""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Rig]:
    """An instance that is stopped, whose head was kept."""
    rig = Rig.create(tmp_path / "instance")
    rig.config.write_text(rig.config.read_text() + KEPT)
    rig.start()
    rig.enrol("worker-a")
    assert rig.stop() == 0
    yield rig
    rig.close()


def refusal(rig: Rig, *words: str) -> str:
    done = rig.cli("broker", "serve", str(rig.config), *words, expect=None)
    assert done.returncode
    return done.stderr


def older(rig: Rig) -> str:
    """Live on for a while, then put the whole folder back as it was; an id that was consumed meanwhile."""
    shutil.copytree(rig.state, rig.folder / "older")
    rig.start()
    agent = rig.enrol("worker-a")
    id = rig.send("worker-a", 2)
    assert agent.consume(id).status_code == 200
    rig.stop()
    shutil.rmtree(rig.state)
    shutil.move(rig.folder / "older", rig.state)
    return id


@pytest.mark.promise("P5")
def test_an_older_folder_is_refused_and_goes_on_only_as_restored(kept: Rig) -> None:
    older(kept)
    said = refusal(kept)
    assert "this state folder is older than what was written" in said
    assert "lever broker serve --restored" in said
    assert "is damaged" in kept.cli("journal", "verify", "--head", "kept", expect=7).stderr
    kept.start("--restored")
    rows = kept.cli("journal", "show", "--json", "--kind", "journal_restored").stdout.splitlines()
    assert [json.loads(row)["lost"] > 0 for row in rows] == [True]
    assert "journal_restored" in kept.submit(*signed(kept)).text, "for two minutes nothing is accepted"
    kept.kill()
    kept.start()
    assert kept.stop() == 0
    kept.cli("journal", "verify", "--head", "kept")


def signed(rig: Rig) -> tuple[bytes, bytes]:
    from broker.wire import statement
    from broker.wire.names import NAMESPACE_DIRECTIVE
    from tests.rig import sign

    raw = statement.encode(rig.statement("worker-a"))
    return raw, sign(rig.key, NAMESPACE_DIRECTIVE, raw)


@pytest.mark.promise("P5")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no head\n", "no line `signature`"),
        ("lever-head 1\ninstance demo\nrecord 9\ndigest " + "0" * 64 + "\nsignature AAAA\n", "not signed by"),
    ],
)
def test_a_kept_head_that_the_broker_did_not_sign_is_refused(kept: Rig, text: str, why: str) -> None:
    (kept.folder / "kept").write_text(text)
    assert why in refusal(kept)
    assert why in kept.cli("journal", "verify", "--head", "kept", expect=6).stderr


@pytest.mark.promise("P5")
def test_without_an_answer_from_where_it_is_kept_nothing_starts(kept: Rig) -> None:
    kept.config.write_text(kept.config.read_text().replace("fetch: [sh", "fetch: [/nowhere/sh"))
    said = refusal(kept)
    assert "can't be started" in said
    assert "kept_head" in said


def test_a_keeper_that_fails_is_told_and_tried_again(kept: Rig) -> None:
    kept.config.write_text(kept.config.read_text().replace("cat > kept.new", "test -e works && cat > kept.new"))
    kept.start()
    kept.enrol("worker-b")
    before = (kept.folder / "kept").read_text()
    (kept.folder / "works").touch()
    assert kept.stop() == 0
    assert (kept.folder / "kept").read_text() != before, "at the latest when it stops"
