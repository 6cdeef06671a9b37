"""A policy document: whole and exact, or refused as a whole, with each problem at its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from broker.errors import Malformed
from broker.wire import policy, strict_json
from broker.wire.json_pointer import show
from broker.wire.policy import NotAPolicy, Policy
from tests.policy.samples import WHOLE, document, policy_of
from tests.wire.samples import FUZZ, hostile, malformed_or


def told(value: Any) -> list[str]:
    with pytest.raises(NotAPolicy) as caught:
        policy.of(value)
    return [f"{show(problem.path)}: {problem.text}" for problem in caught.value.problems]


def test_a_fraction_is_no_version() -> None:
    assert told(document() | {"v": 1.0}) == ["/v: expected 1, the version of this format; found 1.0"]


def test_every_problem_is_told_at_once() -> None:
    wrong = document(("bare",), budgets={"max": 1}) | {"default_action": "allow"}
    assert [line.split(":")[0] for line in told(wrong)] == [
        "/default_action",
        "/tool_allowlist/allowed/0",
        "/budgets/max",
    ]


def test_a_policy_is_its_canonical_bytes() -> None:
    made = policy_of(("files.read",), ("git.*",), ("*.*delete*",))
    assert policy.parse(policy.encode(made)) == made
    assert made.version == f"sample@{made.digest.hex()[:12]}"
    assert policy_of(("files.read",)) != made


@pytest.mark.parametrize("change", [b" ", b"\n"])
def test_other_bytes_of_the_same_policy_are_refused(change: bytes) -> None:
    with pytest.raises(Malformed, match="canonical"):
        policy.parse(policy.encode(policy_of()) + change)


def test_where_is_a_pointer_to_the_first_problem() -> None:
    with pytest.raises(Malformed) as caught:
        policy.parse(strict_json.canonical(document(("bare",))))
    assert caught.value.where == "/tool_allowlist/allowed/0"


def read_any(raw: bytes) -> Policy:
    return policy.of(strict_json.parse(raw, "policy"))


@FUZZ
@given(hostile([policy.encode(WHOLE)]))
def test_malformed_or_a_policy(raw: bytes) -> None:
    for parse in (policy.parse, read_any):
        made = malformed_or(parse, raw)
        assert made is None or isinstance(made, Policy)
