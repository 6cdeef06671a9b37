"""A receipt that was kept in a file: it outlives the bytes that the journal dropped, and is held against the rest."""

from __future__ import annotations

import json
from pathlib import Path

from broker.wire.records import Draft
from lever.exits import Exit
from tests.cli.conftest import Cli
from tests.cli.past import POLICY, Past, an_act
from tests.cli.test_receipt import verified

OF_ALL = [f"policy {POLICY.digest.hex()[:12]}", "tools of files"]


def test_bytes_that_were_dropped_are_told_and_a_kept_receipt_outlives_them(cli: Cli, instance: Path) -> None:
    past = an_act(instance)
    state = past.written(apart=True)
    kept = cli.folder / "kept.json"
    kept.write_text(cli("receipt", "show", "claim-1", "--json", "--state", state).stdout)
    past.forgotten()
    status, told = verified(cli, instance)
    assert status == 0
    assert told["claim-1"]["dropped"] == ["act", *OF_ALL, "arguments"]
    assert "bytes dropped" in cli("receipt", "show", "claim-1", "--config", instance).stdout
    assert "bytes dropped" in cli("receipt", "verify", "--config", instance).stdout
    after = json.loads(cli("receipt", "show", "claim-1", "--json", "--state", state).stdout)
    assert (after["args"], after["consent"]["statement"], after["outcome"]) == (None, None, "done")
    status, told = verified(cli, instance, kept)
    assert (status, told["claim-1"]["dropped"]) == (0, OF_ALL)
    receipt = json.loads(kept.read_text())
    receipt["consent"]["signature"] = receipt["consent"]["statement"]
    kept.write_text(json.dumps(receipt))
    status, told = verified(cli, instance, kept)
    assert (status, told["claim-1"]["problems"]) == (Exit.VERIFICATION_FAILED, ["the file says another consent"])


def test_a_kept_receipt_is_held_against_the_journal(cli: Cli, instance: Path) -> None:
    an_act(instance).written()
    kept = cli.folder / "kept.json"
    good = cli("receipt", "show", "claim-1", "--json", "--config", instance).stdout
    kept.write_text(good)
    assert verified(cli, instance, kept)[0] == 0
    for change in ({"outcome": "failed"}, {"tool": "files.read"}, {"args": "e30="}, {"extra": 1}):
        kept.write_text(json.dumps(json.loads(good) | change))
        status, told = verified(cli, instance, kept)
        assert status == Exit.VERIFICATION_FAILED
        assert told["claim-1"]["problems"] == [f"the file says another {next(iter(change))}"]
    for text in ("", "[" * 100_000, "[]", '{"claim": "claim-1", "args": "%"}'):
        kept.write_text(text)
        assert cli("receipt", "verify", kept, "--config", instance).status == Exit.CORRUPT_FILE


def test_a_claim_that_names_no_bytes_at_all_is_doubted_and_can_be_shown(cli: Cli, instance: Path) -> None:
    """No broker writes one: the journal lies."""
    past = Past(instance, instance / "keys" / "operator-1").began()
    past.then(3, Draft(past.claimed("automatic", {"path": "a.txt"}).fact))
    past.written()
    status, told = verified(cli, instance)
    assert (status, told["claim-1"]["ok"]) == (Exit.VERIFICATION_FAILED, False)
    shown = cli("receipt", "show", "claim-1", "--json", "--config", instance)
    assert (shown.status, json.loads(shown.stdout)["args"]) == (0, None)
