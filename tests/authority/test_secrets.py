"""What an argument says lies in the payload segments, and nowhere else in clear."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import cbor2
import pytest
from pydantic import TypeAdapter

from broker import restart
from broker.journal.disk import RealDisk
from broker.journal.state import StateFolder
from broker.rules import image
from tests.authority.desk import Desk, asked, call, code, sent, text, wide_policy

MARKER = "marker-9f3c1e"
pytestmark = pytest.mark.promise("P30")


def holders(folder: Path) -> set[str]:
    """The files that say it, in clear or in the JSON of a base64 field's bytes."""
    found = (path for path in folder.rglob("*") if path.is_file() and MARKER.encode() in path.read_bytes())
    return {str(path.relative_to(folder)) for path in found}


def test_a_secret_in_arguments_is_in_no_record_log_line_export_or_error_text(own_house: Desk) -> None:
    house, secret = own_house, {"token": MARKER}
    rules = {"s.look": {"class": "read", "rules": [{"pointer": "/token", "max_length": 3}]}}
    house.apply(wide_policy(tools=wide_policy()["tools"] | rules))
    agent = house.rig.enrol("keeper")
    told = []
    request = asked(agent, "s__echo", secret)
    told.append(json.dumps(house.pending(request) | {"args": ""}))
    house.approve(request)
    told += [text(call(agent, "s__echo", secret | {"other": 1}))]
    assert sent(call(agent, "s__echo", secret)) == secret
    house.signed("request_deny", id=asked(agent, "s__echo", secret | {"n": 1}))
    for name, arguments in (
        ("s__echo", secret | {"n": 1}), ("s__look", secret), ("s__stuck", secret), ("s__nothing", secret),
        ("s__echo", [MARKER]), ("s__fails", secret), ("s__look", {"token": {"a": MARKER}}), ("lease_request", secret),
    ):  # fmt: skip
        result = call(agent, name, arguments)
        assert code(result)
        told.append(json.dumps(result))
    assert agent.post("/tools/call", {"name": "s__echo", "arguments": secret, "more": MARKER}).status_code == 400
    house.approve(asked(agent, "s__fails", secret))
    call(agent, "s__fails", secret)
    house.approve(asked(agent, "s__dies", secret))
    assert code(call(agent, "s__dies", secret)) == "outcome_unknown"
    for op in ("request_list", "run_list", "lease_list"):
        told.append(house.signed(op).text)
    for words in (["journal", "show"], ["journal", "show", "--json"], ["journal", "export"], ["journal", "verify"]):
        told.append(house.rig.cli(*words).stdout)
    house.rig.stop()
    told += house.rig.log
    assert not [line for line in told if MARKER in line]
    kept = holders(house.rig.state)
    assert kept, "the exact bytes are kept"
    assert {Path(name).parts[0] for name in kept} == {"payloads"}
    for name in kept:
        assert stat.S_IMODE((house.rig.state / name).stat().st_mode) == 0o600


def test_a_snapshot_holds_none_of_it(own_house: Desk) -> None:
    house = own_house
    agent = house.rig.enrol("pictured")
    house.approve(asked(agent, "s__echo", {"token": MARKER}))
    call(agent, "s__echo", {"token": MARKER}, call_id="kept")
    asked(agent, "s__echo", {"token": MARKER, "n": 2})
    house.rig.stop()
    with StateFolder.open(house.rig.state, house.rig.name) as folder:  # type: ignore[arg-type]
        book, _ = restart.read(folder, RealDisk())
    assert any(MARKER.encode() in request.args for request in book.ledger.requests.values())
    raw = cbor2.dumps(TypeAdapter(image.Image).dump_python(image.of(book)))
    assert MARKER.encode() not in raw
