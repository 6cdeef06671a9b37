"""Policies: the whole of what one may be, and each mistake with the place that it has in the document."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.policy.samples import WHOLE, document
from tests.vectors.case import Case, File, refused

_LISTS, _TOOL, _RULE = "/tool_allowlist", "/tools/files.read", "/tools/files.read/rules/0"
_TO = {"pointer": "/to", "kind": "id"}
_READ, _MUTATION = {"class": "read"}, {"class": "mutation"}
_DIGEST = f"sha256:{'1f' * 32}"


def _tool(**entry: Any) -> dict[str, Any]:
    return document(tools={"files.read": entry}, accounts={"work": {}})


def _account(**entry: Any) -> dict[str, Any]:
    return document(accounts={"work": entry})


def _rule(**rule: Any) -> dict[str, Any]:
    return _tool(rules=[{"pointer": "/path", **rule}])


_REFUSED: list[tuple[Any, str, str]] = [
    ({}, "", "expected the key `v`, which is missing"),
    ([], "", "expected a mapping; found an empty one"),
    (document() | {"v": True}, "/v", "expected 1, the version of this format; found true"),
    (document() | {"name": "A"}, "/name", "expected 1 to 63 of a-z 0-9 -, not starting or ending with -"),
    (document() | {"tool_allow_list": {}}, "/tool_allow_list", "did you mean `tool_allowlist`?"),
    (document() | {"default_action": "allow"}, "/default_action", "expected deny: a tool in no list is never"),
    (document() | {"default_action": None}, "/default_action", "expected deny: a tool in no list is never"),
    (document() | {"tool_allowlist": {}}, "/tool_allowlist", "expected the key `allowed`, which is missing"),
    (document() | {"tool_allowlist": None}, "/tool_allowlist", "expected a mapping; found nothing"),
    (document(("read_file",)), f"{_LISTS}/allowed/0", "the tool's, like server.read_file; found "),
    (document((), ("*",)), f"{_LISTS}/approval_required/0", "the server's name before the tool's, like server.*"),
    (document(("files.*",)), f"{_LISTS}/allowed/0", "patterns stand in approval_required and denied"),
    (document(("Files.a",)), f"{_LISTS}/allowed/0", "with its server in lower case"),
    (document(("a.b\nc",)), f"{_LISTS}/allowed/0", "expected a tool like server.tool, of A-Z a-z 0-9 . _ : / -"),
    (document(("a.b",), ("a.b",)), f"{_LISTS}/approval_required/0", 'in one list, once; found "a.b", which is in'),
    (document(("a.B",), (), ("A.b",)), f"{_LISTS}/denied/0", 'once; found "A.b", which is in allowed'),
    (document(("a.b", "a.b")), f"{_LISTS}/allowed/1", 'once; found "a.b", which is in allowed'),
    (document((True,)), f"{_LISTS}/allowed/0", "expected a tool like server.tool; found true"),  # type: ignore[arg-type]
    (_account(sensitive="true"), "/accounts/work/sensitive", 'true or false, without quotes; found "true"'),
    (_account(sensitive=1), "/accounts/work/sensitive", "expected true or false, without quotes; found 1"),
    (_account(lease_seconds=301), "/accounts/work/lease_seconds", "from 1 to 300; found 301"),
    (_account(lease_seconds=True), "/accounts/work/lease_seconds", "from 1 to 300; found true"),
    (_account(lease_operations=101), "/accounts/work/lease_operations", "from 1 to 100; found 101"),
    (_account(sensitive=True, lease_seconds=9), "/accounts/work", "for a sensitive account: it has no lease"),
    (document(accounts={"a b": {}}), "/accounts/a b", "expected an account's name, 1 to 64 of"),
    (document(budgets={"max_tool_call": 1}), "/budgets/max_tool_call", "did you mean `max_tool_calls`?"),
    (document(budgets={"max_cost_cents": -1}), "/budgets/max_cost_cents", "expected a whole number from 0 to"),
    (document(tools={"files.*": {}}), "/tools/files.*", "expected one tool, exactly, like server.tool"),
    (_tool(klass="read"), f"{_TOOL}/klass", "did you mean `class`?"),
    (_tool(**{"class": "reed"}), f"{_TOOL}/class", 'expected read or mutation; found "reed"'),
    (_tool(account="wrk"), f"{_TOOL}/account", "expected an account of `accounts`"),
    (_tool(account={"pointer": "/to/*"}), f"{_TOOL}/account/pointer", "expected a pointer to one account"),
    (_tool(account=True), f"{_TOOL}/account", "expected an account's name, or a mapping with the pointer"),
    (_tool(resources=["/p"]), f"{_TOOL}/resources/0", 'expected a mapping; found "/p"'),
    (_tool(resources=[{"pointer": "p", "kind": "id"}]), f"{_TOOL}/resources/0/pointer", "like /path or /files"),
    (_tool(resources=[{"pointer": "/p", "kind": "x"}]), f"{_TOOL}/resources/0/kind", "path, host or id"),
    (_tool(resources=[_TO, _TO]), f"{_TOOL}/resources/1", 'expected each pointer once; found "/to" again'),
    (_tool(consent="none"), f"{_TOOL}/consent", "expected `class: mutation` beside `consent: none`"),
    (_tool(reviewed=_DIGEST, **_MUTATION), f"{_TOOL}/reviewed", "expected `class: read` beside `reviewed`"),
    (_tool(reviewed=_DIGEST), f"{_TOOL}/reviewed", "expected `class: read` beside `reviewed`"),
    (_tool(reviewed=_DIGEST[7:], **_READ), f"{_TOOL}/reviewed", "expected sha256: and 64 of 0-9 a-f"),
    (_tool(reviewed=_DIGEST.upper(), **_READ), f"{_TOOL}/reviewed", "expected sha256: and 64 of 0-9 a-f"),
    (_tool(reviewed=True, **_READ), f"{_TOOL}/reviewed", "expected sha256: and 64 of 0-9 a-f"),
    (_tool(reviewed=None, **_READ), f"{_TOOL}/reviewed", "expected sha256: and 64 of 0-9 a-f"),
    (_tool(consent="none", **_READ), f"{_TOOL}/consent", "expected `class: mutation` beside `consent: none`"),
    (_tool(consent=False, **_MUTATION), f"{_TOOL}/consent", "expected none, or no such key"),
    (_tool(consent="none", account="work", **_MUTATION), f"{_TOOL}/consent", "expected no `account` beside"),
    (_rule(), _RULE, "expected one test of equals, in, prefix, min, max, max_length, host_in, absent"),
    (_rule(equals=1, max=2), _RULE, "(min and max may stand together); found equals, max"),
    (_rule(equals=1.5), f"{_RULE}/equals", "expected a text, a whole number, true or false; found 1.5"),
    (_rule(equals=None), f"{_RULE}/equals", "expected a text, a whole number, true or false; found nothing"),
    (_rule(**{"in": []}), f"{_RULE}/in", "expected at least one entry; found an empty one"),
    (_rule(**{"in": ["a", []]}), f"{_RULE}/in/1", "expected a text, a whole number, true or false"),
    (_rule(prefix="/srv/../etc"), f"{_RULE}/prefix", "it has an empty part, `.`, `..`, or a name that ends in"),
    (_rule(prefix=[]), f"{_RULE}/prefix", "expected at least one entry; found an empty one"),
    (_rule(min=2, max=1), _RULE, "expected min to be at most max; found 2 and 1"),
    (_rule(min="1"), f"{_RULE}/min", "expected a whole number from -9007199254740991 to 9007199254740991"),
    (_rule(max_length=-1), f"{_RULE}/max_length", "expected a whole number from 0 to 65536; found -1"),
    (_rule(host_in=["A.example"]), f"{_RULE}/host_in/0", "a bare host, in lower case and without a port"),
    (_rule(absent="true"), f"{_RULE}/absent", 'expected true; found "true"'),
    (_rule(equals=1, otherwise="allow"), f"{_RULE}/otherwise", 'expected approval or deny; found "allow"'),
    (_rule(equals=1) | {"tools": []}, "/tools", "expected a mapping; found an empty one"),
]


def _raw(value: Any) -> bytes:
    """In its canonical form: without fractions, and with ASCII keys, that is this."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _refused() -> Iterator[Case]:
    names = Counter[str]()
    for value, where, why in _REFUSED:
        name = f"{where or 'the whole'}: {why}"
        names[name] += 1
        more = f", {names[name]}" if names[name] > 1 else ""
        yield refused(name + more, _raw(value), where, "NotAPolicy", why)
    whole = _raw(document())
    yield refused("a space behind it", whole + b" ", "policy", why="canonical")
    yield refused("keys in another order", json.dumps(document()).encode(), "policy", why="canonical")
    yield refused("two documents", whole * 2, "policy", why="not one JSON value")
    yield refused("cut short", whole[:-1], "policy", why="not one JSON value")
    yield refused("a key twice", whole[:-1] + b',"v":1}', "policy", why="duplicate key")
    yield refused("a byte order mark", b"\xef\xbb\xbf" + whole, "policy", why="byte order mark")
    yield refused("nothing", b"", "policy")


FILE = File(
    "policies",
    "The bytes of a policy as they are signed: canonical JSON. `where` is a pointer to what the refusal must name, or "
    "`policy` for all of it; `why` is part of its words.",
    "docs/formats/policy.md",
    (
        Case("the least", _raw(document()), says="sample"),
        Case("every key, once", WHOLE.raw, says="sample"),
        *_refused(),
    ),
)
