"""A call that was carried out has its end, whatever its answer weighs and whatever the clock does meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from broker.journal.seal import Sealer
from broker.journal.segments import Position
from broker.rules.authority import closing
from broker.wire import frame
from broker.wire.names import Digest
from tests.authority.table import SEND, Table
from tests.proof.cast import DEMO

pytestmark = pytest.mark.promise("P23")

START = Position(1, 0)


@pytest.mark.parametrize(("name", "arguments"), [("send", SEND), ("list", {})])
def test_an_answer_beyond_a_payload_is_told_and_not_stored(table: Table, name: str, arguments: Any) -> None:
    """Within what a server may write: numbers and text of its JSON can be longer as they are stored."""
    if name == "send":
        table.act()
    claimed = table.call(name, arguments, call_id="one")
    for size_bytes, stored in ((frame.MAX_FRAME_BYTES + 1, 0), (frame.MAX_FRAME_BYTES, 1)):
        ended = closing.end(table.book, table.at, claim=claimed.claim, outcome="done", answer=bytes(size_bytes))
        Sealer(DEMO, 1, Digest(bytes(32)), START, START, 1 << 30).seal(table.at, ended.drafts)
        (draft,) = ended.drafts
        assert len(draft.payloads) == stored
    table.end(claimed, answer=bytes(frame.MAX_FRAME_BYTES + 1))
    assert not table.book.ledger.running
    table.check()
