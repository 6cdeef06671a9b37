"""A lease that the operator opens unasked: not for a moment in which no read would go through, and told what helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import Reason
from broker.rules.authority.passage import Claimed
from broker.wire.act_records import LeaseOpened, RequestEnded
from tests.authority.table import AT, Table
from tests.authority.test_budgets import limited, new_run, stop_run
from tests.authority.test_requests import lift, pause, resume, stop
from tests.proof.cast import A, B

pytestmark = pytest.mark.promise("P21")


def stopped_run(table: Table) -> None:
    stop_run(table, table.run().run)


def used_up(table: Table) -> None:
    limited(table, max_tool_calls=1)


IN_THE_WAY: dict[Reason, tuple[Callable[[Table], Any], str, Callable[[Table], Any]]] = {
    Reason.EMERGENCY_STOP: (stop, "lever resume", lift),
    Reason.AGENT_PAUSED: (pause, f"lever agent resume {A}", resume),
    Reason.RUN_STOPPED: (stopped_run, f"lever run new {A}", new_run),
    Reason.BUDGET_EXCEEDED: (
        used_up, f"a fresh budget: lever run new {A}; a larger one: lever policy apply FILE", new_run,
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", IN_THE_WAY)
def test_it_is_refused_with_what_helps_and_opens_after_that(table: Table, reason: Reason) -> None:
    sets, hint, mends = IN_THE_WAY[reason]
    table.done("list")
    sets(table)
    assert table.lease() == reason
    assert table.hint == hint
    assert (table.count(LeaseOpened), table.count(RequestEnded)) == (0, 0), "nobody asked, so nothing is over"
    mends(table)
    assert table.lease() in table.book.ledger.leases
    assert isinstance(table.call("read"), Claimed)


@pytest.mark.parametrize("reason", [Reason.AGENT_PAUSED, Reason.RUN_STOPPED])
def test_what_is_in_the_way_of_one_agent_is_in_the_way_of_no_other(table: Table, reason: Reason) -> None:
    table.done("list")
    table.done("list", cn=B)
    IN_THE_WAY[reason][0](table)
    assert table.lease(cn=B) in table.book.ledger.leases


def test_the_open_lease_stays_where_its_replacement_is_refused(table: Table) -> None:
    id = table.opened()
    table.done("read")
    limited(table, max_tool_calls=1)
    assert table.lease() == Reason.BUDGET_EXCEEDED
    assert table.the_lease(id).used == 1


def test_figures_that_are_late_are_not_in_the_way(table: Table) -> None:
    table.done("list")
    limited(table, max_cost_cents=100)
    table.later(61)
    assert table.at > AT
    assert table.call("read") == Reason.USAGE_UNREPORTED
    assert table.lease() in table.book.ledger.leases
