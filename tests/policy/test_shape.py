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

LISTS, TOOL, RULE = "/tool_allowlist", "/tools/files.read", "/tools/files.read/rules/0"
TO = {"pointer": "/to", "kind": "id"}
READ, MUTATION = {"class": "read"}, {"class": "mutation"}
DIGEST = f"sha256:{'1f' * 32}"


def told(value: Any) -> list[str]:
    with pytest.raises(NotAPolicy) as caught:
        policy.of(value)
    return [f"{show(problem.path)}: {problem.text}" for problem in caught.value.problems]


def with_tool(**entry: Any) -> dict[str, Any]:
    return document(tools={"files.read": entry}, accounts={"work": {}})


def with_account(**entry: Any) -> dict[str, Any]:
    return document(accounts={"work": entry})


def with_rule(**rule: Any) -> dict[str, Any]:
    return with_tool(rules=[{"pointer": "/path", **rule}])


@pytest.mark.promise("P19")
@pytest.mark.parametrize(
    ("value", "where", "text"),
    [
        ({}, "", "expected the key `v`, which is missing"),
        ([], "", "expected a mapping; found an empty one"),
        (document() | {"v": 1.0}, "/v", "expected 1, the version of this format; found 1.0"),
        (document() | {"v": True}, "/v", "expected 1, the version of this format; found true"),
        (document() | {"name": "A"}, "/name", "expected 1 to 63 of a-z 0-9 -, not starting or ending with -"),
        (document() | {"tool_allow_list": {}}, "/tool_allow_list", "did you mean `tool_allowlist`?"),
        (document() | {"default_action": "allow"}, "/default_action", "expected deny: a tool in no list is never"),
        (document() | {"default_action": None}, "/default_action", "expected deny: a tool in no list is never"),
        (document() | {"tool_allowlist": {}}, "/tool_allowlist", "expected the key `allowed`, which is missing"),
        (document() | {"tool_allowlist": None}, "/tool_allowlist", "expected a mapping; found nothing"),
        (document(("read_file",)), f"{LISTS}/allowed/0", "the tool's, like server.read_file; found "),
        (document((), ("*",)), f"{LISTS}/approval_required/0", "the server's name before the tool's, like server.*"),
        (document(("files.*",)), f"{LISTS}/allowed/0", "patterns stand in approval_required and denied"),
        (document(("Files.a",)), f"{LISTS}/allowed/0", "with its server in lower case"),
        (document(("a.b\nc",)), f"{LISTS}/allowed/0", "expected a tool like server.tool, of A-Z a-z 0-9 . _ : / -"),
        (document(("a.b",), ("a.b",)), f"{LISTS}/approval_required/0", 'in one list, once; found "a.b", which is in'),
        (document(("a.B",), (), ("A.b",)), f"{LISTS}/denied/0", 'once; found "A.b", which is in allowed'),
        (document(("a.b", "a.b")), f"{LISTS}/allowed/1", 'once; found "a.b", which is in allowed'),
        (document((True,)), f"{LISTS}/allowed/0", "expected a tool like server.tool; found true"),  # type: ignore[arg-type]
        (with_account(sensitive="true"), "/accounts/work/sensitive", 'true or false, without quotes; found "true"'),
        (with_account(sensitive=1), "/accounts/work/sensitive", "expected true or false, without quotes; found 1"),
        (with_account(lease_seconds=301), "/accounts/work/lease_seconds", "from 1 to 300; found 301"),
        (with_account(lease_seconds=True), "/accounts/work/lease_seconds", "from 1 to 300; found true"),
        (with_account(lease_operations=101), "/accounts/work/lease_operations", "from 1 to 100; found 101"),
        (with_account(sensitive=True, lease_seconds=9), "/accounts/work", "for a sensitive account: it has no lease"),
        (document(accounts={"a b": {}}), "/accounts/a b", "expected an account's name, 1 to 64 of"),
        (document(budgets={"max_tool_call": 1}), "/budgets/max_tool_call", "did you mean `max_tool_calls`?"),
        (document(budgets={"max_cost_cents": -1}), "/budgets/max_cost_cents", "expected a whole number from 0 to"),
        (document(tools={"files.*": {}}), "/tools/files.*", "expected one tool, exactly, like server.tool"),
        (with_tool(klass="read"), f"{TOOL}/klass", "did you mean `class`?"),
        (with_tool(**{"class": "reed"}), f"{TOOL}/class", 'expected read or mutation; found "reed"'),
        (with_tool(account="wrk"), f"{TOOL}/account", "expected an account of `accounts`"),
        (with_tool(account={"pointer": "/to/*"}), f"{TOOL}/account/pointer", "expected a pointer to one account"),
        (with_tool(account=True), f"{TOOL}/account", "expected an account's name, or a mapping with the pointer"),
        (with_tool(resources=["/p"]), f"{TOOL}/resources/0", 'expected a mapping; found "/p"'),
        (with_tool(resources=[{"pointer": "p", "kind": "id"}]), f"{TOOL}/resources/0/pointer", "like /path or /files"),
        (with_tool(resources=[{"pointer": "/p", "kind": "x"}]), f"{TOOL}/resources/0/kind", "path, host or id"),
        (with_tool(resources=[TO, TO]), f"{TOOL}/resources/1", 'expected each pointer once; found "/to" again'),
        (with_tool(consent="none"), f"{TOOL}/consent", "expected `class: mutation` beside `consent: none`"),
        (with_tool(reviewed=DIGEST, **MUTATION), f"{TOOL}/reviewed", "expected `class: read` beside `reviewed`"),
        (with_tool(reviewed=DIGEST), f"{TOOL}/reviewed", "expected `class: read` beside `reviewed`"),
        (with_tool(reviewed=DIGEST[7:], **READ), f"{TOOL}/reviewed", "expected sha256: and 64 of 0-9 a-f"),
        (with_tool(reviewed=DIGEST.upper(), **READ), f"{TOOL}/reviewed", "expected sha256: and 64 of 0-9 a-f"),
        (with_tool(reviewed=True, **READ), f"{TOOL}/reviewed", "expected sha256: and 64 of 0-9 a-f"),
        (with_tool(reviewed=None, **READ), f"{TOOL}/reviewed", "expected sha256: and 64 of 0-9 a-f"),
        (with_tool(consent="none", **READ), f"{TOOL}/consent", "expected `class: mutation` beside `consent: none`"),
        (with_tool(consent=False, **MUTATION), f"{TOOL}/consent", "expected none, or no such key"),
        (with_tool(consent="none", account="work", **MUTATION), f"{TOOL}/consent", "expected no `account` beside"),
        (with_rule(), RULE, "expected one test of equals, in, prefix, min, max, max_length, host_in, absent"),
        (with_rule(equals=1, max=2), RULE, "(min and max may stand together); found equals, max"),
        (with_rule(equals=1.5), f"{RULE}/equals", "expected a text, a whole number, true or false; found 1.5"),
        (with_rule(equals=None), f"{RULE}/equals", "expected a text, a whole number, true or false; found nothing"),
        (with_rule(**{"in": []}), f"{RULE}/in", "expected at least one entry; found an empty one"),
        (with_rule(**{"in": ["a", []]}), f"{RULE}/in/1", "expected a text, a whole number, true or false"),
        (with_rule(prefix="/srv/../etc"), f"{RULE}/prefix", "it has an empty part, `.`, `..`, or a name that ends in"),
        (with_rule(prefix=[]), f"{RULE}/prefix", "expected at least one entry; found an empty one"),
        (with_rule(min=2, max=1), RULE, "expected min to be at most max; found 2 and 1"),
        (with_rule(min="1"), f"{RULE}/min", "expected a whole number from -9007199254740991 to 9007199254740991"),
        (with_rule(max_length=-1), f"{RULE}/max_length", "expected a whole number from 0 to 65536; found -1"),
        (with_rule(host_in=["A.example"]), f"{RULE}/host_in/0", "a bare host, in lower case and without a port"),
        (with_rule(absent="true"), f"{RULE}/absent", 'expected true; found "true"'),
        (with_rule(equals=1, otherwise="allow"), f"{RULE}/otherwise", 'expected approval or deny; found "allow"'),
        (with_rule(equals=1) | {"tools": []}, "/tools", "expected a mapping; found an empty one"),
    ],
)
def test_a_wrong_document_is_refused_and_the_place_named(value: Any, where: str, text: str) -> None:
    assert [line for line in told(value) if line.startswith(f"{where}: ") and text in line]


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
