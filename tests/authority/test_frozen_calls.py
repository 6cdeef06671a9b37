"""A signed tool_call is bound at its admission to account, resources, arguments and definition: no later policy makes
another call of it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Reason
from broker.rules import admin, consume, image, listing
from broker.rules.authority.passage import Claimed
from broker.wire.act_records import ActEnded, ActGranted, CallFrozen
from broker.wire.statement import BoundAction
from tests.authority.table import SEND, TOOLS, Table, tool
from tests.proof.cast import DEMO, A, B, caller

pytestmark = pytest.mark.promise("P20")

OTHERWISE: list[dict[str, Any]] = [
    {"class": "mutation", "account": "other", "resources": [{"pointer": "/to/*", "kind": "id"}]},
    {"class": "mutation", "resources": [{"pointer": "/to/*", "kind": "id"}]},
    {"class": "mutation", "account": "mail", "resources": [{"pointer": "/text", "kind": "id"}]},
    {"class": "mutation", "account": "mail"},
]


def ended(table: Table) -> tuple[str, str]:
    fact = table.last(ActEnded)
    return str(fact.state), str(fact.reason)


def consumed(table: Table, id: str) -> None:
    decision = consume.consume(
        table.book, table.at, caller=caller(A, 1), raw_id=id, attempt="", standing=table.standing, repeat_s=60
    )
    assert isinstance(table.take(decision), bytes)


def test_what_it_is_bound_to_is_written_with_its_admission(table: Table) -> None:
    id = table.tool_call("send", SEND, consumed=False)
    frozen = table.last(CallFrozen)
    assert (frozen.id, frozen.account, frozen.resources) == (id, "mail", ("id:ann",))
    assert frozen.tool_digest == table.resolved["s.send"].digest  # type: ignore[union-attr]
    assert len(frozen.policies) == 1
    table.restart()
    consumed(table, id)
    granted = table.last(ActGranted)
    assert (granted.account, granted.resources, granted.args_digest, granted.tool_digest) == (
        frozen.account, frozen.resources, frozen.args_digest, frozen.tool_digest,
    )  # fmt: skip
    table.done("send", SEND)


@pytest.mark.parametrize("entry", OTHERWISE)
def test_a_policy_by_which_it_became_another_call_before_the_consume_voids_it_at_the_claim(
    table: Table, entry: dict[str, Any]
) -> None:
    """Judged at the consume, it would serve an account or targets that nobody had before their eyes when signing."""
    id = table.tool_call("send", SEND, consumed=False)
    table.apply(tools={"s.send": entry}, accounts={"other": {}})
    consumed(table, id)
    assert not isinstance(table.call("send", SEND), Claimed)
    assert ended(table) == ("invalidated", "approval_differs")
    table.apply()
    assert not isinstance(table.call("send", SEND), Claimed), "it does not wait for better days"


def test_a_policy_that_denies_it_by_then_voids_it_at_the_claim(table: Table) -> None:
    id = table.tool_call("send", SEND, consumed=False)
    table.apply(tiers={"allowed": [], "denied": ["s.send"]})
    consumed(table, id)
    assert table.call("send", SEND) == Reason.DENIED_BY_RULE
    assert ended(table) == ("invalidated", "denied_by_rule")


def test_a_policy_that_was_otherwise_only_meanwhile_changes_nothing(table: Table) -> None:
    id = table.tool_call("send", SEND, consumed=False)
    table.apply(tools={"s.send": OTHERWISE[0]}, accounts={"other": {}})
    consumed(table, id)
    table.apply()
    table.done("send", SEND)


@pytest.mark.promise("P22")
@pytest.mark.parametrize("first", ["accepted", "consumed"])
def test_a_definition_that_is_another_since_voids_it_though_it_is_accepted(table: Table, first: str) -> None:
    id = table.tool_call("send", SEND, consumed=False)
    changed = tool("send", description="Sends it elsewhere.")
    if first == "consumed":
        consumed(table, id)
    table.resolved["s.send"] = changed
    table.accept(changed)
    if first == "accepted":
        consumed(table, id)
    assert not isinstance(table.call("send", SEND), Claimed)
    assert table.the_act(id).state == "invalidated"


def test_what_is_declared_and_not_brokered_is_bound_to_nothing_also_when_it_is_accepted_later(table: Table) -> None:
    id = table.say(table.statement(BoundAction("tool_call", "files", "write_file", {"path": "a"})))
    assert table.count(CallFrozen) == 0
    table.accept(tool("write_file", "files"))
    (row,) = listing.directives(table.book, table.at, id=id)
    assert row["enforced"] is False
    consumed(table, id)
    assert id not in table.book.ledger.acts


def is_enforced(table: Table, id: str) -> bool:
    (row,) = listing.directives(table.book, table.at, id=id)
    answer: bool = row["enforced"]
    return answer


@pytest.mark.parametrize("ends", ["consumed", "revoked"])
def test_a_brokered_one_is_listed_as_enforced_also_when_it_is_over(table: Table, ends: str) -> None:
    id = table.tool_call("send", SEND, consumed=False, lasts_s=3 * 86400)
    assert is_enforced(table, id)
    if ends == "consumed":
        consumed(table, id)
        table.done("send", SEND)
    else:
        table.take(admin.revoke(table.book, table.at, order=table.order("revoke"), id=id))
    table.accept(tool("read"))  # whatever is accepted later says nothing of it
    table.book.ledger.accepted.clear()
    assert is_enforced(table, id)
    table.restart()
    assert is_enforced(table, id)
    (row,) = listing.directives(image.book(DEMO, image.of(table.book)), table.at, id=id)
    assert row["enforced"] is True
    table.later(49 * 3600)
    table.enrol(B)
    assert id not in table.book.ledger.acts
    assert is_enforced(table, id), "longer than its act is remembered"


@pytest.mark.parametrize("consumed_before", [False, True])
def test_what_was_bound_to_nothing_is_never_listed_as_enforced(table: Table, consumed_before: bool) -> None:
    """Though its tool is brokered by now; or a crash cut off the record that follows its own."""
    id = table.say(table.statement(BoundAction("tool_call", "files", "write_file", {"path": "a"})))
    if consumed_before:
        consumed(table, id)
    table.accept(tool("write_file", "files"))
    assert not is_enforced(table, id)
    for cut in (ActGranted, CallFrozen):
        other = table.tool_call("send", SEND, consumed=cut is ActGranted)
        assert isinstance(table.records.pop().fact, cut)
        table.restart()
        assert not is_enforced(table, other)


@pytest.mark.promise("P22")
def test_for_a_tool_that_is_shut_nothing_is_admitted(table: Table) -> None:
    changed = [tool("send", description="Sends it elsewhere.") if one.name == "send" else one for one in TOOLS]
    table.see(*changed)
    assert table.tool_call("send", SEND) == Reason.TOOL_CHANGED
    assert isinstance(table.tool_call("list", {}), str)
    table.accept(*TOOLS)
    assert table.tool_call("send", SEND) in table.book.ledger.acts
