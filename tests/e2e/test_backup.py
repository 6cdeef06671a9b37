"""A copy of the state folder, made beside a running broker, and what may be done with it."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256

from tests.rig import Rig


def test_a_copy_made_beside_the_broker_is_whole_and_starts(own_rig: Rig) -> None:
    agent = own_rig.enrol("worker-a")
    id = own_rig.send("worker-a")
    done = own_rig.cli("journal", "backup", "copy")
    assert "the copy is whole" in done.stderr
    copy = own_rig.folder / "copy"
    assert copy.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in copy.rglob("*") if path.is_file()} == {0o600}
    assert agent.consume(id).status_code == 200
    own_rig.kill()
    shutil.rmtree(own_rig.state)
    copy.rename(own_rig.state)
    own_rig.start("--restored")
    assert agent.consume(id).status_code == 403, "what was consumed after the copy is not to be had again"
    assert own_rig.stop() == 0


def test_a_copy_never_replaces_anything(own_rig: Rig) -> None:
    (own_rig.folder / "copy").mkdir()
    said = own_rig.cli("journal", "backup", "copy", expect=1).stderr
    assert "exists" in said
    assert list((own_rig.folder / "copy").iterdir()) == []


def test_the_export_is_the_whole_chain_and_no_exact_byte(own_rig: Rig) -> None:
    from broker.journal import inspect
    from broker.wire import record_codec

    agent = own_rig.enrol("worker-a")
    agent.consume(own_rig.send("worker-a"))
    own_rig.stop()
    lines = [json.loads(line) for line in own_rig.cli("journal", "export").stdout.splitlines()]
    assert [line["prev"] for line in lines[1:]] == [line["digest"] for line in lines[:-1]]
    digests = [sha256(record_codec.encode(record)).hexdigest() for record in inspect.walk(own_rig.state)]
    assert [line["digest"] for line in lines] == digests
    assert "Do the thing" not in json.dumps(lines)
