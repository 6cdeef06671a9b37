"""Nobody is asked for a lease that nobody could use."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Reason
from tests.authority.table import Table

pytestmark = pytest.mark.promise("P20", "P21")


READS: dict[str, tuple[dict[str, Any], bool]] = {
    "by name": ({"s.list": {"class": "read", "account": "other"}}, True),
    "by an argument": ({"s.list": {"class": "read", "account": {"pointer": "/account"}}}, True),
    "no tool": ({}, False),
    "a mutation": ({"s.list": {"class": "mutation", "account": "other"}}, False),
    "unclassified": ({"s.list": {"account": "other"}}, False),
    "one that needs an act each time": ({"s.ask": {"class": "read", "account": "other"}}, False),
    "a denied one": ({"s.drop": {"class": "read", "account": "other"}}, False),
    "one that is not accepted": ({"t.read": {"class": "read", "account": "other"}}, False),
}


@pytest.mark.parametrize("how", READS)
def test_nobody_is_asked_for_a_lease_under_which_nothing_could_be_read(table: Table, how: str) -> None:
    tools, usable = READS[how]
    table.apply(accounts={"other": {}}, tools=tools)
    table.call("note", {})
    assert (table.lease_request("other") == Reason.DENIED_BY_DEFAULT) is not usable
    assert (table.lease("other") == Reason.DENIED_BY_DEFAULT) is not usable


def test_nor_for_an_account_that_a_narrower_layer_alone_knows(table: Table) -> None:
    table.call("note", {})
    table.apply(f"agent/{table.run().cn}", accounts={"own": {}},
                tools={"s.read": {"class": "read", "account": "own"}})  # fmt: skip
    assert table.lease_request("own") == Reason.UNKNOWN_ACCOUNT
    assert table.lease("own") == Reason.UNKNOWN_ACCOUNT
