"""What one run may use: the least of all layers, at the last unit too, across restarts, and not by the agent's word."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Malformed, Reason
from broker.rules.authority import budgets, orders
from broker.rules.authority.passage import Claimed
from broker.wire import bodies
from broker.wire.act_records import RequestOpened, RunStarted, UsageReported
from broker.wire.records import ClockAccepted
from tests.authority.table import AT, SEND, Table
from tests.proof.cast import A, B, operator

pytestmark = pytest.mark.promise("P24")


def limited(table: Table, **limits: int) -> None:
    table.apply(budgets=limits)


def report(table: Table, run: str = "", agent: str = "", **figures: int) -> Any:
    values = {"input_tokens": 0, "output_tokens": 0, "cost_micro": 0} | figures
    run = run or ("" if agent else table.run().run)
    asked = operator("usage")
    return table.take(orders.report_usage(table.book, table.at, request=asked, run=run, agent=agent, **values))


def stop_run(table: Table, run: str) -> Any:
    return table.take(orders.stop_run(table.book, table.at, order=table.order("run_stop"), run=run))


def new_run(table: Table, run: str = "next") -> Any:
    return table.take(orders.new_run(table.book, table.at, order=table.order("run_new"), cn=A, run=run))


def test_calls_that_all_run_at_once_share_the_last_units(table: Table) -> None:
    limited(table, max_tool_calls=5)
    answers = [table.call("list") for _ in range(9)]
    assert [isinstance(answer, Claimed) for answer in answers] == [True] * 5 + [False] * 4
    assert answers[-1] == Reason.BUDGET_EXCEEDED
    assert "tool_calls 5/5" in table.said
    table.done("list", cn=B)


def test_what_was_not_sent_is_given_back_and_what_failed_is_not(table: Table) -> None:
    limited(table, max_tool_calls=1)
    table.end(table.call("list"), "not_dispatched")
    table.end(table.call("list"), "failed")
    assert table.call("list") == Reason.BUDGET_EXCEEDED


def test_a_restart_forgets_nothing_of_it(table: Table) -> None:
    limited(table, max_tool_calls=2, max_cost_cents=100)
    table.call("list")
    report(table, cost_micro=500_000)
    assert table.last(UsageReported).caller == operator("usage").caller, "nobody signs them"
    table.restart()
    table.done("list")
    assert table.call("list") == Reason.BUDGET_EXCEEDED
    assert budgets.used(table.run(), table.at)["cost_cents"] == 50


@pytest.mark.parametrize("limit", [
    "max_tool_calls", "max_wall_time_secs", "max_input_tokens", "max_output_tokens", "max_cost_cents",
])  # fmt: skip
def test_a_limit_of_nothing_lets_nothing_through(table: Table, limit: str) -> None:
    limited(table, **{limit: 0})
    assert table.call("list") == Reason.BUDGET_EXCEEDED
    assert not table.book.ledger.runs


def test_wall_time_counts_from_the_first_call(table: Table) -> None:
    limited(table, max_wall_time_secs=100)
    table.later(1000)
    table.done("list")
    table.later(99.999)
    table.done("list")
    table.later(0.001)
    assert table.call("list") == Reason.BUDGET_EXCEEDED


@pytest.mark.parametrize(("limit", "figure", "below", "at"), [
    ("max_input_tokens", "input_tokens", 99, 1), ("max_output_tokens", "output_tokens", 99, 1),
    ("max_cost_cents", "cost_micro", 999_999, 1),
])  # fmt: skip
def test_tokens_and_cost_count_by_what_the_operators_side_reports(
    table: Table, limit: str, figure: str, below: int, at: int
) -> None:
    limited(table, **{limit: 100})
    table.done("list")
    assert report(table, **{figure: below})
    table.done("list")
    report(table, **{figure: at})
    assert table.call("list") == Reason.BUDGET_EXCEEDED
    assert "100/100" in table.said


@pytest.mark.parametrize("limit", ["max_input_tokens", "max_output_tokens", "max_cost_cents"])
def test_a_limit_without_a_figure_for_a_minute_refuses(table: Table, limit: str) -> None:
    limited(table, **{limit: 10**9})
    table.later(500)
    table.done("list")
    table.later(60)
    table.done("list")
    table.later(0.001)
    assert table.call("list") == Reason.USAGE_UNREPORTED
    report(table, input_tokens=1)
    table.done("list")
    table.later(61)
    assert table.call("list") == Reason.USAGE_UNREPORTED


def test_without_a_limit_of_that_kind_no_figure_is_missed(table: Table) -> None:
    limited(table, max_tool_calls=100)
    table.done("list")
    table.later(7200)
    table.done("list")


def test_the_least_of_all_layers_counts(table: Table) -> None:
    table.enrol(A, tenant="acme")
    limited(table, max_tool_calls=10)
    table.apply("tenant/acme", budgets={"max_tool_calls": 2})
    table.apply(f"agent/{A}", budgets={"max_tool_calls": 50, "max_wall_time_secs": 9})
    table.done("list")
    table.done("list")
    assert table.call("list") == Reason.BUDGET_EXCEEDED
    assert budgets.limits(table.book.ledger.layers(("instance", "tenant/acme", f"agent/{A}"))).max_wall_time_secs == 9


def test_nobody_is_asked_for_what_the_budget_would_refuse(table: Table) -> None:
    limited(table, max_tool_calls=1)
    table.done("list")
    assert table.call("send", SEND) == Reason.BUDGET_EXCEEDED
    assert table.lease_request() == Reason.BUDGET_EXCEEDED
    assert table.count(RequestOpened) == 0


def test_a_run_begins_with_an_agents_first_call_and_not_before(table: Table) -> None:
    table.call("drop")
    assert table.count(RunStarted) == 0
    table.call("send", SEND)
    assert table.last(RunStarted).by == "call"
    table.done("list")
    assert table.count(RunStarted) == 1


def test_a_stopped_run_never_revives(table: Table) -> None:
    table.done("list")
    run = table.run().run
    assert stop_run(table, run) is True
    assert table.call("list") == Reason.RUN_STOPPED
    assert stop_run(table, run) is False
    assert report(table, run, input_tokens=1) == ""
    table.restart()
    assert table.call("list") == Reason.RUN_STOPPED
    assert table.lease_request() == Reason.RUN_STOPPED
    stopped_at = table.run().stopped_at
    table.later(10)
    new_run(table)
    table.done("list")
    assert table.run().run == "next"
    old = table.book.ledger.runs[run]
    assert (old.stopped, old.stopped_at) == ("operator", stopped_at)


def test_a_new_run_counts_anew(table: Table) -> None:
    limited(table, max_tool_calls=1)
    table.done("list")
    assert table.call("list") == Reason.BUDGET_EXCEEDED
    new_run(table)
    assert table.book.ledger.runs[table.run().run].calls == 0
    table.done("list")
    assert table.call("list") == Reason.BUDGET_EXCEEDED


def test_a_clock_set_back_gives_no_run_more_time(table: Table) -> None:
    limited(table, max_wall_time_secs=100)
    table.later(10_000)
    table.done("list")
    table.at = AT
    table.write(ClockAccepted(AT))
    assert table.call("list") == Reason.RUN_STOPPED


@pytest.mark.parametrize("value", ["-1", "true", "1.5", '"1"', "1e3", "null"])
def test_a_figure_is_a_whole_number_from_0_up(value: str) -> None:
    with pytest.raises(Malformed):
        bodies.usage_body(b'{"run":"' + b"0" * 32 + b'","cost_micro":' + value.encode() + b"}")


def test_figures_for_a_run_that_is_not_there_are_not_taken(table: Table) -> None:
    assert report(table, "nothing", input_tokens=1) == ""
    assert report(table, agent=A, input_tokens=1) == ""
    assert report(table, agent="nobody", input_tokens=1) == ""
    assert table.count(UsageReported) == 0


def test_figures_of_an_agent_are_its_current_runs(table: Table) -> None:
    limited(table, max_input_tokens=10)
    table.done("list")
    table.done("list", cn=B)
    assert report(table, agent=A, input_tokens=10) == table.run().run
    assert table.call("list") == Reason.BUDGET_EXCEEDED
    table.done("list", cn=B)
    new_run(table)
    assert report(table, agent=A, input_tokens=1) == "next"
    table.done("list")
    table.enrol(A)
    assert report(table, agent=A, input_tokens=1) == ""


@pytest.mark.parametrize("who", [b"", b'"run":"r","agent":"a",', b'"agent":"NOT A NAME",'])
def test_figures_name_a_run_or_an_agent(who: bytes) -> None:
    with pytest.raises(Malformed):
        bodies.usage_body(b"{" + who + b'"cost_micro":1}')
