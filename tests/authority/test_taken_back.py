"""An act that is taken back: at once where it waits, and where its call runs as soon as that was not sent."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rules.authority import orders
from broker.rules.authority.asking import ConsentRequired
from tests.authority.table import SEND, TOOLS, Table, tool
from tests.proof.cast import FIRST_ALONE, SECOND_KEY, A

pytestmark = pytest.mark.promise("P20")


def revoke(table: Table, act: str) -> Any:
    return table.take(orders.revoke_act(table.book, table.at, order=table.order("act_revoke"), id=act))


def test_a_revoked_act_serves_nothing_and_one_that_was_executed_cannot_be_revoked(table: Table) -> None:
    act = table.act()
    assert revoke(table, act) is True
    assert isinstance(table.call("send", SEND), ConsentRequired)
    act = table.act("send", {"to": ["bob"]})
    table.done("send", {"to": ["bob"]})
    assert revoke(table, act) is False


def change_and_accept(table: Table) -> None:
    table.see(*(tool("send", description="Otherwise.") if one.name == "send" else one for one in TOOLS))
    table.accept(*TOOLS)


TAKEN_BACK: dict[str, tuple[str, Any]] = {
    "revoked": ("revoked", lambda table, act: revoke(table, act)),
    "its tool changed, and was accepted again": ("invalidated", lambda table, act: change_and_accept(table)),
    "its agent revoked": ("invalidated", lambda table, act: table.revoke(A)),
    "its agent enrolled anew": ("invalidated", lambda table, act: table.enrol(A)),
    "its key removed for a moment": ("invalidated", lambda table, act: table.uphold(FIRST_ALONE)),
}


@pytest.mark.parametrize("how", TAKEN_BACK)
def test_an_act_that_is_taken_back_while_its_call_runs_is_no_more_where_that_is_not_sent(
    table: Table, how: str
) -> None:
    act = table.approve(table.asked("send", SEND), signer=SECOND_KEY)
    claimed = table.call("send", SEND)
    becomes, take_back = TAKEN_BACK[how]
    take_back(table, act)
    assert revoke(table, act) is False, "it is taken back once"
    assert (table.the_act(act).state, table.claim(claimed).outcome) == ("claimed", ""), "what runs is finished"
    table.check()
    table.end(claimed, "not_dispatched")
    assert table.the_act(act).state == becomes
    table.check()


def test_what_is_sent_though_it_was_taken_back_is_spent(table: Table) -> None:
    act = table.act()
    claimed = table.call("send", SEND)
    assert revoke(table, act) is True
    assert (table.end(claimed), table.the_act(act).state) == ("done", "claimed")
