"""A read lease closes by itself, by time and by count, early rather than late, whatever the agent does."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Malformed, Reason
from broker.rules.authority import orders
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.passage import Claimed
from broker.wire import own_tools, statement
from broker.wire.act_records import CallClaimed, LeaseClosed, LeaseOpened, RequestOpened
from broker.wire.records import ClockAccepted
from broker.wire.statement import BoundAction, LeaseAction
from tests.authority.table import AT, SEND, Table
from tests.proof.cast import FIRST_ALONE, SECOND_KEY, B

pytestmark = pytest.mark.promise("P21")


def closed(table: Table) -> tuple[str, int, int]:
    fact = table.last(LeaseClosed)
    return fact.reason, fact.operations, fact.used_s


@pytest.mark.parametrize("budget", [1, 3, 20])
def test_more_readers_than_operations_get_exactly_so_many_and_the_rest_share_a_request(
    table: Table, budget: int
) -> None:
    table.opened(ops=budget)
    answers = []
    for _ in range(budget + 5):
        answers.append(answer := table.call("read"))
        if isinstance(answer, Claimed):
            table.end(answer)
    assert [type(answer) for answer in answers] == [Claimed] * budget + [ConsentRequired] * 5
    assert len({answer.request.request for answer in answers[budget:]}) == 1


def test_readers_that_all_run_at_once_share_what_there_is(table: Table) -> None:
    table.opened(ops=4)
    running = [table.call("read") for _ in range(12)]
    assert sum(isinstance(answer, Claimed) for answer in running) == 4
    table.lapse()
    assert closed(table) == ("operations", 4, 0)
    for answer in running[:4]:
        assert table.end(answer) == "done", "what was claimed is finished"


def test_the_read_that_asked_takes_its_operation_in_the_record_of_its_call(table: Table) -> None:
    id = table.opened(ops=1)
    before = len(table.records)
    assert isinstance(table.call("read"), Claimed)
    assert [type(record.fact) for record in table.records[before:]] == [CallClaimed]
    assert (table.the_lease(id).used, table.the_lease(id).started_at) == (1, table.at)


@pytest.mark.parametrize("ops", [1, 3])
def test_other_reads_leave_one_operation_to_the_read_that_asked(table: Table, ops: int) -> None:
    request = table.asked("read", {"id": 1})
    table.lease(ops=ops, request=request)
    others = [table.call(name, {"id": id}) for name, id in (("find", 1), ("read", 2), ("read", 3), ("find", 4))]
    assert sum(isinstance(answer, Claimed) for answer in others) == ops - 1
    table.lapse()
    table.check()
    claimed = table.call("read", {"id": 1})
    table.end(claimed, "not_dispatched")
    table.check()
    assert isinstance(table.call("read", {"id": 2}), ConsentRequired), "it was not made yet"
    table.done("read", {"id": 1})
    assert isinstance(table.call("read", {"id": 1}), ConsentRequired), "it is one, and no more"


def test_the_same_read_again_that_was_not_sent_brings_no_kept_operation_back(table: Table) -> None:
    table.opened(ops=3)
    table.done("read")
    table.end(table.call("read"), "not_dispatched")
    table.check()
    for _ in range(2):
        table.done("find")


def test_once_that_read_was_made_nothing_is_kept_for_it(table: Table) -> None:
    table.opened(ops=2)
    table.done("read")
    table.done("find", {"id": 2})
    table.lapse()
    table.lease(ops=1, request=str(table.lease_request().request.request))
    table.done("find", {"id": 2})


@pytest.mark.parametrize(("after_s", "open_still"), [(89.999, True), (90, False), (91, False)])
def test_it_ends_so_many_seconds_after_its_first_read(table: Table, after_s: float, open_still: bool) -> None:
    table.opened()
    table.later(50)
    table.done("read")
    for _ in range(9):
        table.later(after_s / 10)
        table.done("find")  # nothing that it is used for makes it longer
    table.later(after_s / 10)
    assert isinstance(table.call("read"), Claimed) is open_still


@pytest.mark.parametrize(("after_s", "open_still"), [(59.999, True), (60, False)])
def test_it_waits_a_minute_for_its_first_read(table: Table, after_s: float, open_still: bool) -> None:
    table.opened()
    table.later(after_s)
    table.lapse()
    assert isinstance(table.call("read"), Claimed) is open_still
    if not open_still:
        assert closed(table) == ("time", 0, 0)


def test_its_clock_starts_with_the_first_read_and_not_with_the_signature(table: Table) -> None:
    table.opened()
    table.later(59)
    table.done("read")
    table.later(89)
    table.done("read")
    table.later(1)
    table.lapse()
    assert closed(table) == ("time", 2, 90)


def test_a_suspended_machine_does_not_stop_it(table: Table) -> None:
    """The wall clock stood still, or was set back: the other one counted on."""
    id = table.opened()
    table.done("read", elapsed_s={id: 0.0})
    assert isinstance(table.call("read", elapsed_s={id: 89.9}), Claimed)
    assert isinstance(table.call("read", elapsed_s={id: 90.0}), ConsentRequired)
    table.lapse({id: 90.0})
    assert closed(table)[0] == "time"


@pytest.mark.parametrize("lasts_s", [600, 20])
def test_nor_does_it_wait_longer_for_its_first_read_while_the_machine_is_suspended(table: Table, lasts_s: int) -> None:
    """The wall clock stands still. What is signed for less than a minute waits for no longer than that."""
    id, waits_s = table.opened(lasts_s=lasts_s), min(60, lasts_s)
    assert isinstance(table.call("read", waited_s={id: float(waits_s)}), ConsentRequired)
    table.lapse(waited_s={id: waits_s - 0.1})
    assert isinstance(table.call("read", waited_s={id: waits_s - 0.1}), Claimed)
    assert isinstance(table.call("find", waited_s={id: 80.0}), Claimed), "once it is read, its seconds count"
    table.lapse(waited_s={id: 80.0})
    second = table.lease()
    table.lapse(waited_s={second: 60.0})
    assert closed(table) == ("time", 0, 0)


def test_a_wall_clock_that_leaps_ahead_closes_it_early(table: Table) -> None:
    id = table.opened()
    table.done("read")
    table.later(3600)
    assert isinstance(table.call("read", elapsed_s={id: 0.1}), ConsentRequired)


def test_a_restart_closes_it_with_a_record_of_what_was_used(table: Table) -> None:
    table.opened()
    table.done("read")
    table.later(7)
    table.restart()
    assert closed(table) == ("restart", 1, 7)
    assert isinstance(table.call("read"), ConsentRequired)


def test_a_call_that_upstream_answers_with_an_error_takes_its_operation_all_the_same(table: Table) -> None:
    id = table.opened(ops=3)
    for outcome in ("failed", "outcome_unknown"):
        claimed = table.call("read")
        table.end(claimed, outcome)
    assert table.the_lease(id).used == 2


def test_what_was_provably_not_sent_gives_its_operation_back(table: Table) -> None:
    id = table.opened(ops=1)
    claimed = table.call("read")
    table.end(claimed, "not_dispatched")
    assert table.the_lease(id).used == 0
    table.done("read")


def test_what_is_refused_before_the_claim_costs_nothing(table: Table) -> None:
    id = table.opened()
    for name in ("drop", "unlisted", "nothing", "pay", "send"):
        table.call(name, SEND)
    table.call("read", "no object")
    assert table.the_lease(id).used == 0


def test_a_new_consent_replaces_the_old_one_and_adds_nothing(table: Table) -> None:
    first = table.opened(ops=5)
    for _ in range(3):
        table.done("read")
    second = table.lease(ops=4)
    assert closed(table) == ("replaced", 3, 0)
    assert list(table.book.ledger.leases) == [second] != [first]
    for _ in range(4):
        table.done("read")
    assert isinstance(table.call("read"), ConsentRequired)


def test_releasing_only_closes_early_twice_is_no_error_and_no_other_agents_closes(table: Table) -> None:
    table.opened()
    assert table.take(orders.release_lease(table.book, table.at, cn=B, account="mail")) is False
    assert table.take(orders.release_lease(table.book, table.at, cn=table.run().cn, account="mail")) is True
    assert closed(table)[0] == "released"
    assert table.take(orders.release_lease(table.book, table.at, cn=table.run().cn, account="mail")) is False
    assert isinstance(table.call("read"), ConsentRequired)


def test_the_operator_closes_it_twice(table: Table) -> None:
    id = table.opened()
    for expected in (True, False):
        decision = orders.shut_lease(table.book, table.at, order=table.order("lease_close"), id=id)
        assert table.take(decision) is expected
    assert isinstance(table.call("read"), ConsentRequired)


def test_it_serves_this_agent_account_enrolment_and_run_alone(table: Table) -> None:
    table.apply(accounts={"other": {}}, tools={"s.find": {"class": "read", "account": "other"}})
    table.opened()
    assert isinstance(table.call("read", cn=B), ConsentRequired)
    assert isinstance(table.call("find"), ConsentRequired)
    table.take(orders.new_run(table.book, table.at, order=table.order("run_new"), cn=table.run().cn, run="another"))
    assert isinstance(table.call("read"), ConsentRequired)
    assert closed(table)[0] == "run over"


def test_re_enrolment_and_revocation_end_it(table: Table) -> None:
    for end in (table.enrol, table.revoke):
        cn = table.opened() and table.run().cn
        end(cn)
        assert not table.book.ledger.leases
        table.enrol(cn)
        assert isinstance(table.call("read"), ConsentRequired)


def test_the_operators_key_gone_ends_it(table: Table) -> None:
    table.opened(signer=SECOND_KEY)
    table.uphold(FIRST_ALONE)
    assert closed(table)[0] == "key_not_standing"
    assert isinstance(table.call("read"), ConsentRequired)


def test_a_read_that_runs_when_the_lease_ends_is_finished(table: Table) -> None:
    table.opened()
    claimed = table.call("read")
    table.later(300)
    table.lapse()
    assert table.end(claimed, answer=b"[]") == "done"
    assert not table.book.ledger.leases


@pytest.mark.parametrize("value", [0, -1, 301, True, 1.5])
def test_no_statement_says_more_than_300_seconds_or_100_operations(table: Table, value: Any) -> None:
    for seconds, ops in ((value, 20), (90, 101 if value == 301 else value)):
        with pytest.raises(Malformed):
            statement.encode(table.statement(LeaseAction("mail", seconds, ops)))


@pytest.mark.parametrize(
    ("account", "seconds", "ops"),
    [({}, 90, 20), ({"lease_seconds": 30, "lease_operations": 2}, 30, 2), ({"lease_seconds": 300}, 300, 20)],
)
def test_it_is_no_longer_than_the_policy_says(table: Table, account: dict[str, Any], seconds: int, ops: int) -> None:
    table.apply(accounts={"mail": account})
    table.opened(300, 100)
    opened = table.last(LeaseOpened)
    assert (opened.seconds, opened.operations) == (seconds, ops)


def test_a_policy_that_has_become_tighter_counts_at_the_next_read(table: Table) -> None:
    table.opened()
    for _ in range(3):
        table.done("read")
    table.apply(accounts={"mail": {"lease_operations": 3}})
    assert isinstance(table.call("read"), ConsentRequired)
    table.apply()
    table.done("read")


@pytest.mark.parametrize(("minutes", "seconds"), [(1, 60), (2, 90), (1440, 90), (None, 90)])
def test_minutes_can_shorten_it_and_never_lengthen_it(table: Table, minutes: int | None, seconds: int) -> None:
    asked = table.lease_request(seconds=minutes and minutes * 60)
    table.lease(request=asked.request.request)
    assert table.last(LeaseOpened).seconds == seconds
    table.done("read")
    table.later(seconds)
    assert isinstance(table.call("read"), ConsentRequired)


@pytest.mark.parametrize("value", [0, -5, True, 1.5, "5", [1]])
def test_minutes_that_are_no_whole_number_from_1_up_are_refused(value: Any) -> None:
    with pytest.raises(Malformed):
        own_tools.parse("lease_request", {"account": "mail", "minutes": value})


def test_a_reads_own_argument_named_seconds_shortens_nothing(table: Table) -> None:
    table.lease(request=table.asked("read", {"seconds": 1}))
    assert table.last(LeaseOpened).seconds == 90


def test_a_sensitive_account_has_no_lease(table: Table) -> None:
    assert table.lease_request("payroll") == Reason.DENIED_BY_RULE
    request = table.asked("pay", {"month": 1})
    assert table.last(RequestOpened).regime == "act"
    assert table.lease("payroll") == Reason.DENIED_BY_RULE
    assert table.lease("mail", request=request) == Reason.APPROVAL_DIFFERS
    table.approve(request)
    table.done("pay", {"month": 1})
    assert isinstance(table.call("pay", {"month": 1}), ConsentRequired), "each read is an act of its own"


def test_an_account_that_becomes_sensitive_has_none_any_more(table: Table) -> None:
    table.opened()
    table.apply(accounts={"mail": {"sensitive": True}})
    table.call("read")
    assert table.last(RequestOpened).regime == "act"


def test_one_signature_opens_one_lease(table: Table) -> None:
    table.call("list")
    value = table.statement(LeaseAction("mail", 90, 1))
    assert table.say(value) == value.directive_id
    table.done("read")
    table.lapse()
    assert table.say(value) == Reason.ID_SEEN
    table.restart()
    assert table.say(value) == Reason.ID_SEEN
    assert isinstance(table.call("read"), ConsentRequired)
    held = table.statement(BoundAction("tool_call", "s", "send", {"to": []}), id=value.directive_id)
    assert table.say(held) == Reason.ID_SEEN, "nor is its id ever another's, open or closed"


def test_a_lease_is_signed_for_now(table: Table) -> None:
    table.call("list")
    assert table.lease(lasts_s=49 * 3600) == Reason.EXPIRY_BEYOND_CAP


@pytest.mark.parametrize(("opens_s", "opens"), [(-1, True), (0, True), (1, False), (599, False)])
def test_it_never_opens_before_the_time_for_which_it_was_signed(table: Table, opens_s: int, opens: bool) -> None:
    request = table.asked("read")
    answer = table.lease(request=request, opens_s=opens_s)
    assert (answer == Reason.NOT_YET_VALID) is not opens
    assert isinstance(table.call("read"), Claimed) is opens


def test_none_opens_for_an_unknown_account_another_request_or_no_run(table: Table) -> None:
    assert table.lease("mail") == Reason.NO_RUN
    request = table.asked("read")
    table.apply(accounts={"other": {}})
    assert table.lease("other", request=request) == Reason.APPROVAL_DIFFERS
    assert table.lease("nobody's") == Reason.UNKNOWN_ACCOUNT
    assert table.lease("mail", request=request, cn=B) == Reason.APPROVAL_DIFFERS
    run = table.run().run
    table.take(orders.stop_run(table.book, table.at, order=table.order("run_stop"), run=run))
    assert table.lease("mail") == Reason.RUN_STOPPED


def test_a_lease_lets_nothing_but_reads_through(table: Table) -> None:
    table.opened()
    assert isinstance(table.call("send", SEND), ConsentRequired)
    table.apply(tools={"s.read": {"account": "mail"}})
    assert isinstance(table.call("read"), ConsentRequired), "what is in no class is a mutation"
    assert table.last(RequestOpened).regime == "act"


def test_an_act_for_just_this_read_is_spent_before_the_lease(table: Table) -> None:
    id = table.opened()
    act = table.tool_call("read", {"id": 1})
    table.done("read", {"id": 1})
    assert table.the_act(act).state == "claimed"
    table.done("read", {"id": 1})
    assert table.the_lease(id).used == 1


def test_a_clock_that_the_operator_sets_back_ends_it(table: Table) -> None:
    table.opened()
    table.done("read")
    table.at = AT
    table.write(ClockAccepted(AT))
    assert not table.book.ledger.leases
