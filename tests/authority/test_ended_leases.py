"""How each lease ended, and what was used of it: remembered for two days, for the operator who sets its terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.rules.authority import orders, rows
from broker.rules.authority.ledger import KEEP_S
from broker.wire.act_records import RunStopped
from broker.wire.records import ClockAccepted
from tests.authority.table import Table
from tests.proof.cast import A

pytestmark = pytest.mark.promise("P21")


def stop_run(table: Table) -> None:
    table.take(orders.stop_run(table.book, table.at, order=table.order("run_stop"), run=table.run().run))


def lapse(table: Table) -> None:
    table.later(90)
    table.lapse()


ENDS: dict[str, tuple[Callable[[Table], Any], int]] = {
    "time": (lapse, 90),
    "replaced": (lambda table: table.lease("mail"), 30),
    "released": (lambda table: table.take(orders.release_lease(table.book, table.at, cn=A, account="mail")), 30),
    "restart": (lambda table: table.restart(), 30),
    "run over": (stop_run, 30),
    "revoked": (lambda table: table.revoke(A), 30),
    "enrolled anew": (lambda table: table.enrol(A), 30),
    "clock": (lambda table: table.write(ClockAccepted(table.at)), 30),
}


@pytest.mark.parametrize("reason", ENDS)
def test_it_is_told_why_each_ended_and_how_much_was_used(table: Table, reason: str) -> None:
    end, used_s = ENDS[reason]
    id = table.opened(seconds=60 if reason == "time" else 90)
    table.done("read")
    table.done("read", {"n": 2})
    table.later(30)
    end(table)
    (row,) = rows.ended_leases(table.book)
    assert id not in table.book.ledger.leases
    assert (row["lease"], row["agent"]["cn"], row["account"]) == (id, A, "mail")
    assert (row["used"], row["operations"], row["reason"]) == (2, 20, reason)
    assert row["used_s"] == min(used_s, row["seconds"])


def test_a_run_that_ends_without_records_of_its_leases_ends_them_too(table: Table) -> None:
    table.opened()
    table.write(RunStopped(table.run().run, "operator"))
    assert [(row["reason"], row["used"], row["used_s"]) for row in rows.ended_leases(table.book)] == [
        ("run over", 0, 0)
    ]


def test_it_is_forgotten_after_two_days(table: Table) -> None:
    table.opened()
    table.restart()
    table.later(KEEP_S - 60)
    table.done("list")
    assert rows.ended_leases(table.book)
    table.later(180)
    table.done("list")
    assert not rows.ended_leases(table.book)
