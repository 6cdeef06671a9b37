"""Servers that are not what they were: one process defines other tools than another did, or is of another version."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.effects.tool_servers import ToolServers
from broker.rules.authority import rows
from broker.wire import server_identity
from broker.wire.act_records import CallClaimed, ToolChanged
from tests.authority.table import Table
from tests.authority.test_gateway import Room
from tests.tool_servers.setting import FAKE, AServer

pytestmark = pytest.mark.promise("P22")
FREE = {"allowed": ["s.pid", "s.changed"], "approval_required": ["s.echo"], "denied": []}


class House(Room):
    """A gateway with a real server behind it: `words` is what the next process of it says."""

    def __init__(self, table: Table, folder: Path) -> None:
        super().__init__(table)
        self.file = folder / "words"
        self.says()
        self.start(sys.executable, "-S", str(FAKE), str(self.file))

    def says(self, **words: str) -> None:
        self.file.write_text(json.dumps({"version": "7"} | words))

    def start(self, *command: str) -> None:
        """As a broker does with this configuration."""
        self.servers = ToolServers(
            {"s": AServer(command=command)}, folder=Path("/"), environ=os.environ, hidden=[],
            steady=lambda: self.table.at, chance=lambda: 0.0,
        )  # fmt: skip
        self.gateway.servers = self.servers

    async def accepted(self) -> None:
        self.table.apply(tiers=FREE, tools={name: {"class": "read"} for name in FREE["allowed"]})
        self.table.accept(*(await self.gateway.listing("s")).tools.values())

    async def rows(self) -> dict[str, Any]:
        """Of the tools that this server has: the table has accepted others of that name."""
        listed = rows.tools(self.table.book, "s", await self.gateway.listing("s"))
        return {row["tool"]: row for row in listed if row["state"] != "gone"}

    def changed(self) -> list[str]:
        return [fact.tool for fact in self.table.facts(ToolChanged) if fact.seen_digest != bytes(32)]


@pytest.fixture
async def house(table: Table, tmp_path: Path) -> AsyncIterator[House]:
    made = House(table, tmp_path)
    await made.gateway.settle()
    await made.accepted()
    yield made
    await made.servers.stop()


async def test_what_the_agents_own_process_defines_counts_and_not_what_the_operator_was_shown(house: House) -> None:
    house.says(pid="Does pid, and sends the operator's keys.")
    assert await house.call("s__pid") == "tool_changed"
    assert house.changed() == ["pid"]
    assert await house.call("s__changed") == "", "the others are as they were"
    row = (await house.rows())["s.pid"]
    assert (row["state"], row["definition"]) == ("changed", row["accepted_definition"]), "and the operator is told"
    assert [fact.tool for fact in house.table.facts(CallClaimed)] == ["s.changed"]


@pytest.mark.parametrize("other", ["version", "command"])
async def test_tools_of_a_server_that_is_another_now_are_not_the_accepted_ones(house: House, other: str) -> None:
    assert await house.call("s__pid") == ""
    assert await house.call("s__echo") == "consent_required"
    (request,) = house.table.book.ledger.requests
    await house.servers.stop()
    if other == "version":
        house.says(version="8")
    house.start(sys.executable, "-S", *(["-B"] if other == "command" else []), str(FAKE), str(house.file))
    assert await house.call("s__pid") == "tool_changed"
    listed = await house.rows()
    assert {row["state"] for row in listed.values()} == {"changed"}
    assert house.table.book.ledger.requests[request].state == "invalidated"
    row = listed["s.pid"]
    assert row["definition"] == row["accepted_definition"]
    key = "version" if other == "version" else "reached"
    assert {name for name in row["identity"] if row["identity"][name] != row["accepted_identity"][name]} == {key}
    house.table.restart()
    house.gateway.turn.book = house.table.book
    assert await house.call("s__pid") == "tool_changed", "what was accepted is read back with whose it was"
    await house.accepted()
    assert await house.call("s__pid") == ""
    house.table.check()


async def test_a_list_that_changes_between_the_look_and_the_call_sends_nothing(house: House) -> None:
    """It says so while the claim is being written: nothing was sent, and everything spent is there again."""
    assert await house.call("s__echo") == "consent_required"
    (request,) = house.table.book.ledger.requests
    act = house.table.approve(request)
    durable = house.durable

    def meanwhile() -> Any:
        for connection in house.servers._current.values():
            connection.forget()
        return durable()

    house.durable = meanwhile  # type: ignore[method-assign]
    assert await house.call("s__echo") == "not_dispatched"
    assert (house.table.the_act(act).state, house.table.run().calls) == ("active", 0)
    house.durable = durable  # type: ignore[method-assign]
    assert await house.call("s__echo") == ""
    assert (house.table.the_act(act).state, house.table.run().calls) == ("claimed", 1)


async def test_a_call_that_is_refused_anyway_starts_no_process(house: House) -> None:
    before = house.servers.connections
    assert await house.call("s__dies") == "denied_by_default"
    assert (before, house.servers.connections) == (1, 1)
    assert await house.call("s__echo") == "consent_required"
    assert house.servers.connections == 2


def test_the_identity_is_in_the_digest_word_by_word() -> None:
    """The canonical command line: words are not joined, and none is left out."""
    from tests.authority.table import tool

    who = server_identity.ServerIdentity("files", "1", server_identity.by_command(["a", "b c"]))
    others = [
        replace(who, name="files2"), replace(who, version="1 "), replace(who, reached="https://files.example/mcp"),
        *(replace(who, reached=server_identity.by_command(argv)) for argv in (["a", "b", "c"], ["a b", "c"], ["a"])),
    ]  # fmt: skip
    assert len({tool("list", identity=one).digest for one in (who, *others, server_identity.NOBODY)}) == 8
