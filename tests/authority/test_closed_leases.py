"""Whatever ends a lease leaves a record of its own: why, and what of it was used."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.errors import Reason
from broker.rules import admin, identity
from broker.rules.authority.asking import ConsentRequired
from broker.wire.act_records import LeaseClosed
from broker.wire.records import AgentEnrolled, AgentFrozen, AgentPaused, AgentRevoked
from tests.authority.table import Table
from tests.proof.cast import A, B, caller, request

pytestmark = pytest.mark.promise("P21")


def pause(table: Table) -> None:
    table.take(admin.pause(table.book, table.at, order=table.order("agent_pause"), cn=A))


def freeze(table: Table) -> None:
    """One certificate, renewed with two keys."""
    for key in ("one", "two"):
        ask, issue = request(A, key)
        table.take(identity.renew(table.book, table.at, caller=caller(A, table.generation()), ask=ask, issue=issue))


ENDS: dict[str, tuple[Callable[[Table], None], type]] = {
    "enrolled anew": (lambda table: table.enrol(A), AgentEnrolled),
    "revoked": (lambda table: table.revoke(A), AgentRevoked),
    "frozen": (freeze, AgentFrozen),
    "paused": (pause, AgentPaused),
}


@pytest.mark.parametrize("reason", ENDS)
def test_the_end_of_who_had_it_is_written_with_what_was_used(table: Table, reason: str) -> None:
    id = table.opened()
    table.done("read")
    table.later(7)
    table.done("read")
    other = table.lease(request=table.asked("read", cn=B), cn=B)
    end, fact = ENDS[reason]
    end(table)
    assert table.last(LeaseClosed) == LeaseClosed(id, reason, 2, 7)
    assert table.count(LeaseClosed) == 1
    last = [type(record.fact) for record in table.records if isinstance(record.fact, LeaseClosed | fact)]
    assert last[-2:] == [LeaseClosed, fact], "before what ends it, so that no crash leaves it out"
    assert list(table.book.ledger.leases) == [other], "nobody else's"


@pytest.mark.parametrize("reason", ENDS)
def test_one_that_nobody_has_leaves_no_record(table: Table, reason: str) -> None:
    ENDS[reason][0](table)
    assert table.count(LeaseClosed) == 0


def test_a_pause_ends_a_lease_for_good_and_leaves_what_waits(table: Table) -> None:
    table.opened()
    table.done("read")
    act = table.act()
    pause(table)
    assert table.call("read") == Reason.AGENT_PAUSED
    table.take(admin.resume(table.book, table.at, order=table.order("agent_resume"), cn=A))
    assert isinstance(table.call("read"), ConsentRequired)
    assert table.the_act(act).state == "active"
