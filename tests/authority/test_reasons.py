"""Why: what of which policy refused a call or asks for a signature, to the operator and in the journal."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Reason
from broker.rules.authority import passage, rows
from broker.rules.authority.asking import ConsentRequired
from broker.rules.decision import Decision
from broker.rules.refusals import FOLD_S, RefusalFold
from broker.wire import policy, tool_results
from broker.wire.act_records import RequestOpened
from broker.wire.names import Instant
from broker.wire.records import RequestRefused
from broker.wire.times import SECOND
from tests.authority.table import AT, SEND, Table, a_policy

MARKER = "c4n4ry"
LIMITED = {"s.list": {"class": "read", "rules": [{"pointer": "/n", "max": 5, "otherwise": "approval"}]}}


def version(**changes: Any) -> str:
    return policy.of(a_policy(**changes)).version


@pytest.mark.parametrize(
    ("name", "arguments", "changes", "reason"),
    [
        ("send", SEND, {}, "a mutation by the table (policy {})"),
        ("unlisted", {}, {"tiers": {"allowed": ["s.unlisted"]}}, "unclassified, so a mutation (policy {})"),
        ("ask", {}, {"tools": {"s.ask": {"class": "read"}}}, "approval required by `s.ask` of policy {}"),
        ("pay", {}, {}, "account payroll is sensitive in policy {}: each read is its own act"),
        ("list", {"n": 6}, {"tools": LIMITED}, "argument rule not met: /n from any to 5, else approval, of policy {}"),
        ("read", {}, {}, "a read of account mail: one operation of its lease"),
    ],
)  # fmt: skip
def test_what_asks_for_a_signature_is_told_with_its_policy(
    table: Table, name: str, arguments: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    table.apply(**changes)
    answer = table.call(name, arguments)
    assert isinstance(answer, ConsentRequired), answer
    expected = reason.format(version(**changes))
    assert table.last(RequestOpened).reason == expected
    assert tool_results.consent_required(answer.request, False)["structuredContent"]["reason"] == expected
    assert rows.request(table.book, table.book.ledger.requests[answer.request.request], table.at)["reason"] == expected


def test_a_layer_that_makes_a_read_a_mutation_is_named(table: Table) -> None:
    layer = {"name": "layer", "tools": {"s.list": {"class": "mutation"}}}
    table.apply("agent/worker-a", **layer)
    table.asked("list")
    assert table.last(RequestOpened).reason == f"a mutation by the table (policy {version(**layer)})"


def noted(table: Table, name: str, arguments: Any) -> RequestRefused:
    passing = table.passing(name, arguments)
    decision: Decision[Any] = passage.pass_on(table.book, table.at, passing=passing)
    assert decision.noted
    return decision.noted


@pytest.mark.parametrize(
    ("name", "arguments", "reason", "rule"),
    [
        ("drop", {}, Reason.DENIED_BY_RULE, "denied by rule `s.drop` of policy {}"),
        ("unlisted", {}, Reason.DENIED_BY_DEFAULT, "denied by default: in no list of policy {}"),
        ("list", {"n": 7}, Reason.DENIED_BY_ARGUMENT,
         "argument rule not met: /n from any to 5, else deny, of policy {}"),
        ("list", {"n": MARKER}, Reason.DENIED_BY_ARGUMENT,
         "argument rule not met: /n from any to 5, else deny, of policy {}"),
        ("list", {MARKER: 1}, Reason.DENIED_BY_ARGUMENT,
         "argument rule not met: /n from any to 5, else deny, of policy {}"),
        ("list", MARKER, Reason.INVALID_ARGUMENTS, ""),
        ("send", {"to": MARKER}, Reason.AMBIGUOUS_OPERAND, ""),
    ],
)  # fmt: skip
def test_a_refusal_in_the_journal_names_rule_and_policy_and_nothing_of_the_arguments(
    table: Table, name: str, arguments: Any, reason: Reason, rule: str
) -> None:
    changes = {"tools": {"s.list": {"class": "read", "rules": [{"pointer": "/n", "max": 5}]}}}
    table.apply(**changes)
    refused = noted(table, name, arguments)
    assert (refused.reason, refused.rule) == (reason, rule.format(version(**changes)))
    assert refused.policies == (policy.of(a_policy(**changes)).digest.hex(),)
    assert MARKER not in repr(refused)


def test_refusals_by_another_rule_are_counted_apart(table: Table) -> None:
    fold = RefusalFold()
    first, second = noted(table, "drop", {}), noted(table, "unlisted", {})
    fold.fold(first, AT)
    for refusal in (first, second, second):
        assert fold.fold(refusal, AT) == ()
    counted = [draft.fact for draft in fold.flush(Instant(AT + FOLD_S * SECOND))]
    assert [(fact.rule, fact.policies, fact.count) for fact in counted if isinstance(fact, RequestRefused)] == [
        (first.rule, first.policies, 1),
        (second.rule, second.policies, 2),
    ]
