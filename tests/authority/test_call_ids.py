"""The same call again, many calls at once, and calls that outlive their caller's enrolment."""

from __future__ import annotations

import pytest

from broker.errors import Reason
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.caller_steps import MAX_IN_FLIGHT
from broker.rules.authority.passage import Claimed, Repeated
from broker.wire.act_records import CallClaimed
from tests.authority.table import SEND, Table
from tests.proof.cast import A, B

pytestmark = pytest.mark.promise("P20")


def test_the_same_call_id_is_answered_the_same_and_never_executed_again(table: Table) -> None:
    table.act()
    claimed = table.call("send", SEND, call_id="one")
    running = table.call("send", SEND, call_id="one")
    assert isinstance(running, Repeated)
    assert running.claim.outcome == ""
    table.end(claimed, answer=b'{"n":1}')
    for arguments in (SEND, dict(reversed(SEND.items()))):
        again = table.call("send", arguments, call_id="one")
        assert (again.claim.outcome, table.answer(again)) == ("done", b'{"n":1}')
    table.restart()
    assert table.answer(table.call("send", SEND, call_id="one")) == b'{"n":1}'
    assert table.count(CallClaimed) == 1


@pytest.mark.parametrize("denied", [False, True])
def test_another_call_under_the_same_call_id_is_a_conflict(table: Table, denied: bool) -> None:
    table.act()
    table.end(table.call("send", SEND, call_id="one"), answer=b'{"n":1}')
    if denied:
        table.apply(tiers={"allowed": [], "denied": ["*.*"]})
    for name, arguments in (("send", {"to": ["bob"]}), ("list", SEND), ("send", "no object"), ("nothing", SEND)):
        assert table.call(name, arguments, call_id="one") == Reason.CALL_ID_CONFLICT


def test_a_call_id_is_its_agents_and_enrolments_own(table: Table) -> None:
    table.done("list", {"n": 1}, call_id="one")
    table.done("list", {"n": 2}, call_id="one", cn=B)
    table.enrol(A)
    table.done("list", {"n": 3}, call_id="one")


def test_what_was_not_sent_may_be_called_again_under_its_name(table: Table) -> None:
    table.end(table.call("list", call_id="one"), "not_dispatched")
    assert isinstance(table.call("list", call_id="one"), Claimed)


def test_an_agent_runs_so_many_calls_at_once(table: Table) -> None:
    running = [table.call("list") for _ in range(MAX_IN_FLIGHT)]
    assert table.call("list") == Reason.RATE_LIMITED
    table.done("list", cn=B)
    table.end(running[0])
    table.done("list")


def test_an_agent_that_is_enrolled_anew_during_a_call_gets_nothing_of_it(table: Table) -> None:
    table.act()
    claimed = table.call("send", SEND, call_id="one")
    table.enrol(A)
    assert table.end(claimed, answer=b'{"n":1}') == "done", "it is finished and recorded"
    assert isinstance(table.call("send", SEND, call_id="one"), ConsentRequired)


def test_and_what_was_not_sent_then_gives_the_new_enrolment_nothing(table: Table) -> None:
    table.act()
    claimed = table.call("send", SEND)
    table.enrol(A)
    table.end(claimed, "not_dispatched")
    assert isinstance(table.call("send", SEND), ConsentRequired)
