"""What the operator is told of a call that nobody made is what the call gets: of the caller, and of a tool's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.rules import admin
from broker.rules.authority import caller_steps, orders, rows
from broker.rules.authority.judgement import Unresolved
from broker.rules.listing import agents
from broker.wire import catalogue
from broker.wire.records import AgentFrozen
from broker.wire.server_identity import NOBODY
from tests.authority.table import TOOLS, Table, tool
from tests.proof.cast import A, digest, operator

KNOWN = {one.name: one.definition for one in TOOLS}


def stop(table: Table) -> None:
    table.take(orders.stop_all(table.book, table.at, request=operator("stop")))


def stop_run(table: Table) -> None:
    table.done("list")
    order = table.order("run_stop")
    table.take(orders.stop_run(table.book, table.at, order=order, run=table.run().run))


def spend(table: Table) -> None:
    table.apply(budgets={"max_tool_calls": 1})
    table.done("list")


def report_nothing(table: Table) -> None:
    table.apply(budgets={"max_input_tokens": 100})
    table.done("list")
    table.later(61)


def crowd(table: Table) -> None:
    for _ in range(caller_steps.MAX_IN_FLIGHT):
        table.call("list")


def pause(table: Table) -> None:
    table.take(admin.pause(table.book, table.at, order=table.order("agent_pause"), cn=A))


BARRED: list[tuple[Callable[[Table], object], int, str]] = [
    (pause, 1, "agent_paused"),
    (lambda table: table.revoke(A), 1, "agent_revoked"),
    (lambda table: table.write(AgentFrozen(A, table.generation(), digest("a"), digest("b"))), 1, "agent_frozen"),
    (stop, 1, "emergency_stop"),
    (stop_run, 2, "run_stopped"),
    (spend, 2, "budget_exceeded"),
    (report_nothing, 2, "usage_unreported"),
    (crowd, 3, "rate_limited"),
]


@pytest.mark.parametrize(("happen", "number", "code"), BARRED, ids=[code for _, _, code in BARRED])
def test_what_bars_an_agent_is_told_as_its_call_is_refused(
    table: Table, happen: Callable[[Table], object], number: int, code: str
) -> None:
    happen(table)
    steps, refused = caller_steps.told(table.book, table.at, A)
    assert refused == (code, refused[1] if refused else "")
    assert [step.number for step in steps] == [1, 2, 3]
    assert steps[number - 1].text.startswith(code)
    assert table.call("list") == code
    (row,) = agents(table.book, table.at, cn=A)
    assert row["calls"]["refused"]["code"] == code


def test_an_agent_that_nothing_bars_is_told_what_it_used_of_what(table: Table) -> None:
    assert caller_steps.told(table.book, table.at, A).steps[1].text.startswith("it is in no run")
    table.apply(budgets={"max_tool_calls": 9})
    table.call("list")
    steps, refused = caller_steps.told(table.book, table.at, A)
    assert refused is None
    assert steps[1].text == f"run {table.run().run} goes on; tool_calls 1/9"
    assert steps[2].text == "1 of its calls run, 16 may at once"
    (row,) = agents(table.book, table.at, cn=A)
    assert row["calls"] == {"steps": [step._asdict() for step in steps], "refused": None}


def test_of_one_that_is_not_enrolled_nothing_is_refused(table: Table) -> None:
    steps, refused = caller_steps.told(table.book, table.at, "nobody")  # type: ignore[arg-type]
    assert ([step.number for step in steps], refused) == ([1], None)


def seen(**definitions: Any) -> catalogue.Listing:
    """The server's own list; None leaves a tool out."""
    raw = [one for one in (KNOWN | definitions).values() if one is not None]
    return catalogue.listing("s", NOBODY, raw)


STATES: list[tuple[str, catalogue.Listing | None, str, str | None]] = [
    ("accepted", seen(), "list", None),
    ("changed", seen(list=tool("list", description="Other.").definition), "list", "tool_changed"),
    ("gone", seen(list=None), "list", "tool_changed"),
    ("unacceptable", seen(list=KNOWN["list"] | {"description": "a\u202eb"}), "list", "tool_changed"),
    ("quarantined", seen(new=tool("new").definition), "new", "unknown_tool"),
    ("unavailable", None, "list", "server_unavailable"),
]


@pytest.mark.parametrize(("state", "listing", "name", "code"), STATES, ids=[state for state, _, _, _ in STATES])
def test_a_tool_is_told_to_be_shut_as_its_call_is_refused(
    table: Table, state: str, listing: catalogue.Listing | None, name: str, code: str | None
) -> None:
    def told() -> dict[str, Any]:
        return next(row for row in rows.tools(table.book, "s", listing) if row["tool"] == f"s.{name}")

    assert (told()["state"], told()["refused"]) == (state, code)
    away = Unresolved.SERVER_UNAVAILABLE
    table.resolved[f"s.{name}"] = away if listing is None else listing.tools.get(name, Unresolved.TOOL_CHANGED)
    assert (table.call(name) == code) is (code is not None)
    if listing:
        table.see(*listing.tools.values())  # from now on it is shut, whatever its server says
        table.resolved[f"s.{name}"] = catalogue.pin("s", KNOWN.get(name) or tool("new").definition)
        listing = seen() if state != "quarantined" else listing
        assert told()["refused"] == code
        assert (table.call(name) == code) is (code is not None)
