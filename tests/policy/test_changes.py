"""Comparing policies, and warning of what may not be meant."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rules.authority.changes import Change, changes
from broker.rules.authority.warnings import warnings
from tests.policy.samples import WHOLE, policy_of

READ, MUTATION = {"class": "read"}, {"class": "mutation"}
P = {"pointer": "/p", "equals": 1}
SAFE = tuple(
    f"*.*{word}*" for word in ("delete", "remove", "drop", "purge", "destroy", "admin", "sudo", "grant", "shell")
)

SHELL = 'tools for administration are not denied by rule; add to `denied`: "*.*shell*"'


def both(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """The changes one way, of which the other way has the opposite."""
    lists = {"allowed": (), "approval": (), "denied": ()}
    before, after = policy_of(**lists | old), policy_of(**lists | new)
    there, back = list(changes(before, after)), list(changes(after, before))
    opposite = {"wider": "stricter", "stricter": "wider", "other": "other"}
    turned = [Change(each.what, each.new, each.old, opposite[each.effect]) for each in back]  # type: ignore[arg-type]
    assert sorted(there) == sorted(turned)
    return there


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"allowed": ("a.b",)}, [("a.b", "in no list", "allowed", "wider")]),
        ({"approval": ("a.b",)}, {"allowed": ("a.b",)}, [("a.b", "approval_required", "allowed", "wider")]),
        ({"denied": ("a.b",)}, {}, [("a.b", "denied", "in no list", "other")]),
        (
            {"allowed": ("a.b",), "denied": ("a.*",)},
            {"allowed": ("a.b",)},
            [("a.b", "denied", "allowed", "wider"), ("pattern a.*", "denied", "absent", "wider")],
        ),
        ({}, {"approval": ("a.*",)}, [("pattern a.*", "absent", "approval_required", "other")]),
        ({"tools": {"a.b": MUTATION}}, {"tools": {"a.b": READ}}, [("a.b class", "mutation", "read", "wider")]),
        (
            {"tools": {"a.b": MUTATION}},
            {"tools": {"a.b": MUTATION | {"consent": "none"}}},
            [("a.b consent", "needed", "none", "wider")],
        ),
        (
            {"tools": {"a.b": READ}},
            {"tools": {"a.b": READ | {"reviewed": f"sha256:{'1f' * 32}"}}},
            [("a.b reviewed", "none", f"sha256:{'1f' * 32}", "wider")],
        ),
        (
            {"tools": {"a.b": READ | {"reviewed": f"sha256:{'2e' * 32}"}}},
            {"tools": {"a.b": READ | {"reviewed": f"sha256:{'1f' * 32}"}}},
            [("a.b reviewed", f"sha256:{'2e' * 32}", f"sha256:{'1f' * 32}", "other")],
        ),
        (
            {"tools": {"a.b": {"rules": [P]}}},
            {"tools": {"a.b": {}}},
            [("a.b rule", "/p in 1, else deny", "absent", "wider")],
        ),
        (
            {"tools": {"a.b": {"resources": [{"pointer": "/p", "kind": "id"}]}}},
            {"tools": {"a.b": {}}},
            [("a.b resource", "/p as an id", "absent", "wider")],
        ),
        ({}, {"accounts": {"x": {}}}, [("account x", "absent", "known", "wider")]),
        (
            {"accounts": {"x": {"sensitive": True}}},
            {"accounts": {"x": {}}},
            [("account x sensitive", "true", "false", "wider")],
        ),
        (
            {"accounts": {"x": {"lease_seconds": 30}}},
            {"accounts": {"x": {"lease_operations": 21}}},
            [("account x lease_seconds", "30", "90", "wider"), ("account x lease_operations", "20", "21", "wider")],
        ),
        (
            {"budgets": {"max_tool_calls": 5}},
            {"budgets": {"max_cost_cents": 5}},
            [
                ("budget max_tool_calls", "5", "no limit", "wider"),
                ("budget max_cost_cents", "no limit", "5", "stricter"),
            ],
        ),
    ],
)
def test_what_changes_and_in_which_direction(old: dict[str, Any], new: dict[str, Any], expected: list[Any]) -> None:
    assert both(old, new) == [Change(*each) for each in expected]


def test_nothing_changes_between_a_policy_and_itself() -> None:
    assert list(changes(WHOLE, WHOLE)) == []


@pytest.mark.parametrize(
    ("lists", "more", "expected"),
    [
        (((), (), SAFE), {}, []),
        (
            ((), (), SAFE[2:]),
            {},
            ['tools for deletion are not denied by rule; add to `denied`: "*.*delete*", "*.*remove*"'],
        ),
        (((), (), SAFE[:-1]), {}, [SHELL]),
        (((), ("*.*shell*",), SAFE[:-1]), {}, [SHELL]),
        (
            (("a.b",), (), SAFE),
            {},
            ["`a.b` is allowed and has no entry in `tools`: unclassified, each call needs a signed act"],
        ),
        (
            ((), ("a.delete",), SAFE),
            {},
            ["`a.delete` in approval_required means nothing: denied by `*.*delete*`, which is stricter"],
        ),
        (
            (("a.b",), ("a.*",), SAFE),
            {"tools": {"a.b": READ}},
            ["`a.b` in allowed means nothing: approval_required by `a.*`, which is stricter"],
        ),
        (
            ((), (), SAFE),
            {"tools": {"a.b": READ}},
            ["`a.b` has an entry in `tools`, and is in no list: it is denied by default"],
        ),
        (
            (("a.b",), (), SAFE),
            {"tools": {"a.b": MUTATION | {"consent": "none"}}},
            ["`a.b` is a mutation that needs no consent: it must change nothing outside its own scratch space"],
        ),
        (
            (("a.b",), (), SAFE),
            {"tools": {"a.b": MUTATION}},
            ["`a.b` is a mutation without `resources`: an act shows its arguments, but no target apart"],
        ),
        ((), {"budgets": {"max_tool_calls": 5, "max_wall_time_secs": 5}}, []),
        (
            (("a.b", "a.c"), (), SAFE),
            {
                "tools": {
                    "a.b": READ | {"resources": [{"pointer": "/x", "kind": "path"}]},
                    "a.c": READ | {"resources": [{"pointer": "/x", "kind": "id"}]},
                }
            },
            [
                "resources of kind id are whatever the agent writes, and stand in clear in journal and receipts: "
                "no secret may be one (`a.c`)"
            ],
        ),
        *(
            (
                (),
                {"budgets": {limit: 5}},
                [
                    f"`{limit}` needs figures from the host: without a proxy that reports them (`lever run usage`), "
                    "every call is refused 60 s after a run began"
                ],
            )
            for limit in ("max_input_tokens", "max_output_tokens", "max_cost_cents")
        ),
    ],
)
def test_warnings(lists: Any, more: dict[str, Any], expected: list[str]) -> None:
    assert list(warnings(policy_of(*(lists or ((), (), SAFE)), **more))) == expected
