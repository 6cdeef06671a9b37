"""Which answers are stored, and for how long: no agent fills memory or disk with what its reads bring."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from broker.errors import Reason
from broker.rules.authority import orders
from broker.rules.authority.ledger import KEEP_ANSWER_S, KEEP_PLAIN_S, KEEP_S
from broker.rules.authority.passage import Claimed
from broker.rules.authority.room import ANSWER_BYTES, ARGUMENT_BYTES, CLAIM_BYTES
from broker.wire.act_records import CallEnded
from broker.wire.names import Cn, Digest
from broker.wire.records import ClockAccepted
from broker.wire.strict_json import canonical
from tests.authority.table import SEND, Table
from tests.authority.test_gateway import Room
from tests.proof.cast import A, B, caller

CALL = CLAIM_BYTES + len(b"{}")
SAID = b'{"content":[{"type":"text","text":"so it is"}]}'
DIGEST = Digest(sha256(SAID).digest())


@pytest.mark.parametrize(
    ("name", "arguments", "call_id", "stored"),
    [("list", {}, "", False), ("list", {}, "one", True), ("note", {}, "", False), ("send", SEND, "", True)],
)
def test_an_answer_is_stored_where_it_may_be_asked_for_again(
    table: Table, name: str, arguments: object, call_id: str, stored: bool
) -> None:
    if name == "send":
        table.act()
    claimed = table.call(name, arguments, call_id=call_id)
    table.end(claimed, answer=SAID)
    ended = table.records[-1]
    assert ended.fact == CallEnded(claimed.claim, "done", DIGEST, len(SAID))
    assert [table.bytes[ref] for ref in ended.payloads] == ([SAID] if stored else [])


def test_what_is_unknown_after_a_crash_has_no_answer(table: Table) -> None:
    claimed = table.call("list", call_id="one")
    table.restart()
    assert table.last(CallEnded) == CallEnded(claimed.claim, "outcome_unknown", Digest(sha256().digest()), 0)
    assert table.answer(table.call("list", call_id="one")) == b""


def stores(table: Table, size_bytes: int, cn: Cn = A) -> bool:
    """Is the answer of another read stored? With one payload, whatever size is said of it."""
    call_id = table.id()
    claimed = table.call("list", call_id=call_id, cn=cn)
    found = table.book.ledger.stores(table.claim(claimed), size_bytes, table.at)
    table.write(CallEnded(claimed.claim, "done", DIGEST, size_bytes), (SAID,) if found else ())
    assert bool(table.answer(table.call("list", call_id=call_id, cn=cn))) is found
    return found


def test_an_agent_has_so_much_room_for_answers_and_it_comes_back_in_a_day(table: Table) -> None:
    assert not stores(table, ANSWER_BYTES - CALL + 1)
    assert stores(table, ANSWER_BYTES - 10 * CALL)
    assert not stores(table, 7 * CALL + 1)
    assert stores(table, 6 * CALL)
    assert not stores(table, 1)
    assert stores(table, ANSWER_BYTES - CALL, cn=B)
    table.restart()
    assert not stores(table, 1)
    table.act()
    table.end(table.call("send", SEND), answer=SAID)
    assert table.records[-1].payloads
    table.later(3600)
    assert not stores(table, ANSWER_BYTES // 20)
    assert stores(table, ANSWER_BYTES // 25)
    table.later(86400 + 120)
    assert stores(table, ANSWER_BYTES - CALL)
    table.check()


LONG = {"text": "x" * 60_000}


def test_what_nobody_signed_fills_no_disk_with_its_arguments(table: Table) -> None:
    assert stores(table, ANSWER_BYTES - CALL), "answers leave room to call"
    for _ in range(ARGUMENT_BYTES // len(canonical(LONG))):
        table.done("list", LONG)
    assert table.call("list", LONG) == Reason.RATE_LIMITED
    assert isinstance(table.call("list", LONG, cn=B), Claimed)
    table.act("send", LONG | SEND)
    assert isinstance(table.call("send", LONG | SEND), Claimed), "a signature paid for it"
    table.opened()
    assert table.call("read", LONG) == Reason.RATE_LIMITED
    table.check()
    table.later(86400)
    assert isinstance(table.call("list", LONG), Claimed)


def test_a_call_that_nobody_can_ask_for_again_is_soon_forgotten(table: Table) -> None:
    plain, named = table.done("list"), table.done("list", call_id="one")
    table.act()
    act = table.done("send", SEND)
    unknown = table.call("list")
    table.end(unknown, "outcome_unknown")
    claims = table.book.ledger.claims
    table.later(KEEP_PLAIN_S - 1)
    assert table.done("list").claim in claims
    assert plain.claim in claims
    table.later(62)
    table.done("list")
    assert plain.claim not in claims
    assert {named.claim, act.claim, unknown.claim} <= claims.keys()
    table.check()
    table.later(KEEP_S - KEEP_PLAIN_S)
    table.done("list", call_id="one")
    assert not {named.claim, act.claim, unknown.claim} & claims.keys()
    table.check()


def test_a_place_is_remembered_and_not_the_answer(table: Table) -> None:
    table.end(table.call("list", call_id="one"), answer=SAID)
    claim = table.call("list", call_id="one").claim
    assert [ref.digest for ref in claim.answer_refs] == [DIGEST]
    assert "so it is" not in repr(claim)
    table.later(KEEP_ANSWER_S + 61)
    assert table.answer(table.call("list", call_id="one")) == b""
    table.done("list")


@pytest.mark.promise("P20")
async def test_a_repeat_tells_what_is_stored_or_that_it_is_not(table: Table) -> None:
    room = Room(table)
    await room.gateway.settle()
    who = caller(A, table.generation())

    async def repeated(call_id: str) -> dict[str, Any]:
        assert await room.gateway.call(who, "s__list", {}, call_id=call_id) == {"content": []}
        return await room.gateway.call(who, "s__list", {}, call_id=call_id)

    assert await repeated("one") == {"content": []}
    assert stores(table, ANSWER_BYTES - 3 * CALL)
    gone = await repeated("two")
    assert gone["isError"]
    told = gone["structuredContent"]
    assert (told["code"], told["outcome"]) == ("answer_not_kept", "done")
    assert "make the read anew" in told["message"]
    assert len(room.upstream.calls) == 2


def test_a_clock_that_was_set_back_leaves_room(table: Table) -> None:
    table.later(30 * 86400)
    table.done("list", call_id="one")
    table.later(-30 * 86400)
    table.write(ClockAccepted(table.at))
    table.take(orders.new_run(table.book, table.at, order=table.order("run_new"), cn=A, run="anew"))
    table.done("list", call_id="two")
