"""A receipt names the policies that were in force for its agent, each by its own scope, and notices one left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.rules.authority import receipts
from broker.wire.act_records import CallClaimed
from broker.wire.records import PayloadRef, Record
from tests.authority.table import Table
from tests.proof.cast import A, B, digest

pytestmark = pytest.mark.promise("P20")
NOT_ALL = "the policies that it names are not all that were in force for its agent, in order"


def scopes(table: Table) -> list[list[str]]:
    """Of each call that was begun, the scopes of what its receipt names."""
    found = receipts.read(table.records).of.values()
    assert not [flaw for one in found for flaw in one.flaws if "polic" in flaw and "signed" not in flaw]
    return [[policy.scope for policy in one.policies] for one in found]


def flaws(table: Table, *policies: str) -> list[str]:
    """What is seen of the last call, had its record named these policies."""
    again = replace(table.last(CallClaimed), claim="another", policies=policies)
    record = Record(len(table.records) + 1, table.at, digest("prev"), (PayloadRef(again.args_digest, 1, 0, 1),), again)
    return [one for one in receipts.read([*table.records, record]).of["another"].flaws if "signed envelope" not in one]


def test_the_same_bytes_in_force_for_another_agent_are_not_named(table: Table) -> None:
    table.apply(scope=f"agent/{B}")
    table.done("list")
    table.done("list", cn=B)
    assert scopes(table) == [["instance"], ["instance", f"agent/{B}"]]


def test_the_tenant_is_that_of_the_invitation_which_was_redeemed(table: Table) -> None:
    table.apply(scope="tenant/acme")
    table.apply(scope="tenant/other")
    table.enrol(A, tenant="acme")
    table.done("list")
    table.enrol(A)
    table.done("list")
    assert scopes(table) == [["instance", "tenant/acme"], ["instance"]]


def test_a_layer_left_out_or_of_another_agent_is_a_flaw(table: Table) -> None:
    budget = {"budgets": {"max_tool_calls": 9}}
    table.apply(scope=f"agent/{A}", **budget)
    table.done("list")
    both = table.last(CallClaimed).policies
    assert flaws(table, *both) == []
    assert flaws(table, both[0]) == [NOT_ALL]
    assert flaws(table, *reversed(both)) == [NOT_ALL]
    table.apply(scope=f"agent/{B}", **{"budgets": {"max_tool_calls": 8}})
    table.done("list", cn=B)
    theirs = table.last(CallClaimed).policies
    table.done("list")
    assert flaws(table, *both, theirs[1]) == ["a policy that it names was not in force"]
    assert flaws(table) == [NOT_ALL]
