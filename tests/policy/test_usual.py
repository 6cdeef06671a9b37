"""All argument rules asked at once say what they say one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

from broker.errors import Malformed
from broker.rules.authority import arguments
from broker.rules.authority.arguments import MissingOperand
from broker.rules.authority.usual import Usual
from broker.wire.policy_terms import Rule
from tests.policy.samples import one_tool

TESTS: tuple[dict[str, Any], ...] = (
    {"prefix": ["/srv/a", "notes"]},
    {"prefix": "/"},
    {"min": 1, "max": 50},
    {"min": 1},
    {"max": 50},
    {"max_length": 3},
    {"in": ["inbox", "sent"]},
    {"in": ["inbox", 1, True]},
    {"host_in": "a.example"},
    {"absent": True},
)
PATHS = ("/", "//", "/srv/a", "/srv/a/", "/srv/a/x", "/srv/ab", "/srv/a/../b", "/srv/a//b", "/srv/a/.", "/srv/a/b ")
ODD = ("notes", "/srv/a/%2e", "/srv/a\\b", "/srv/a/\x7f", "~/srv/a", "c:/srv/a", "/srv/a/e\u0301", "/" + "x" * 4096, "")
ONE = (*PATHS, *ODD, "inbox", "sent", "1", "four", "a.example", 0, 1, 2, 50, 51, True, False, None)
MANY: tuple[Any, ...] = ([], [1, 50], ["inbox"], ["/srv/a", "/srv/b"], [1, 2, 3, 4], {}, {"b": 1}, {"b": "/srv/a"})
VALUES = (*ONE, *MANY)


def _rules(at: str) -> tuple[Rule, ...]:
    """Each of the tests at this pointer."""
    rules = [{"pointer": at, **test} for test in TESTS]
    return one_tool({"class": "read", "rules": rules}).tools["files.read"].rules


def _holds(rule: Rule, values: dict[str, Any]) -> bool:
    try:
        return arguments.check_of(rule.pointer, rule.test)(values)
    except (MissingOperand, Malformed):
        return False


def test_a_rule_says_the_same_at_once() -> None:
    for at, name in product(("/a", "/*", "/a/*", "/a/b"), ("a", "*", "b")):
        for rule, value in product(_rules(at), VALUES):
            assert Usual.of([rule]).hold({name: value}) is _holds(rule, {name: value}), (rule, name, value)


def test_rules_hold_together_where_each_does() -> None:
    for rules in product(_rules("/a"), _rules("/b")):
        usual = Usual.of(rules)
        for one, other in product(("/srv/a", "inbox", 1, 51, None), repeat=2):
            values = {"a": one, "b": other}
            assert usual.hold(values) is all(_holds(rule, values) for rule in rules), (rules, values)
