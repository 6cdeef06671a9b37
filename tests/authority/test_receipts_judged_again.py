"""A receipt's call is judged again from the journal's own bytes: what the enforcement would not have let through so is
seen, and nothing that it let through is doubted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pytest

from broker.rules.authority import receipts
from broker.rules.authority.rejudging import Rejudging
from broker.wire import accepted, policy
from broker.wire.act_records import CallClaimed, PolicyApplied, ToolsAccepted
from broker.wire.names import Digest, Fingerprint
from broker.wire.records import PayloadRef, Record
from tests.authority.table import SEND, TAME, TOOLS, Table, a_policy, tool
from tests.proof.cast import digest

pytestmark = pytest.mark.promise("P20")
OPERATOR = Fingerprint("SHA256:operator")


def judged(table: Table, *records: Record) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Of each call in order: its problems, and what has no bytes. That no envelopes lie here is no matter."""
    found = receipts.read([*table.records, *records]).of.values()
    again = Rejudging(table.bytes.get)
    for one in found:
        one.flaws = [flaw for flaw in one.flaws if "signed envelope" not in flaw]
        assert one.flaws == []
    return [again.again(one) for one in found]


def claimed(table: Table, fact: CallClaimed, raw: bytes | None = None) -> Record:
    """A further call, as somebody wrote it into the journal."""
    args_digest = fact.args_digest if raw is None else Digest(sha256(raw).digest())
    ref = next((one for one in table.bytes if one.digest == args_digest), None)
    if ref is None and raw is not None:
        table.bytes[ref := PayloadRef(args_digest, 1, len(table.bytes), len(raw))] = raw
    assert ref
    again = replace(fact, claim="another", args_digest=args_digest)
    return Record(len(table.records) + 1, table.at, digest("prev"), (ref,), again)


def problems(table: Table, fact: CallClaimed, raw: bytes | None = None) -> tuple[str, ...]:
    return judged(table, claimed(table, fact, raw))[-1][0]


def called(table: Table, name: str, arguments: object = None) -> CallClaimed:
    """The record of a call that goes through."""
    if name == "send":
        table.act()
    if name == "read":
        table.opened()
    table.done(name, SEND if name == "send" else arguments or {})
    return table.last(CallClaimed)


def test_what_was_let_through_is_judged_the_same_again(table: Table) -> None:
    for name in ("list", "note", "send", "read", "find"):
        called(table, name)
    table.apply(tools={"s.list": {"class": "mutation", "consent": "none"}})
    table.resolved["s.list"] = tool("list", annotations=TAME)
    table.accept(table.resolved["s.list"])
    called(table, "list")
    assert judged(table) == [((), ())] * 6


LIES: list[tuple[str, Callable[[CallClaimed], CallClaimed], str]] = [
    ("send", lambda fact: replace(fact, consent="automatic"), "it needs a signed act"),
    ("read", lambda fact: replace(fact, consent="automatic"), "it needs a lease"),
    ("list", lambda fact: replace(fact, tool_class="mutation"), "it has another class"),
    ("list", lambda fact: replace(fact, account="mail"), "it has another account"),
    ("list", lambda fact: replace(fact, resources=("id:ann",)), "it has another list of resources"),
]


@pytest.mark.parametrize(("name", "lie", "words"), LIES, ids=[words for _, _, words in LIES])
def test_a_claim_that_says_something_else_is_seen(
    table: Table, name: str, lie: Callable[[CallClaimed], CallClaimed], words: str
) -> None:
    (said,) = problems(table, lie(called(table, name)))
    assert said.startswith(f"judged again, {words}")


def test_arguments_that_are_refused_or_none_are_seen(table: Table) -> None:
    rule = {"pointer": "/path", "equals": "a"}
    table.apply(tools={"s.list": {"class": "read", "rules": [rule]}})
    fact = called(table, "list", {"path": "a"})
    assert problems(table, fact, b'{"path":"a"}') == ()
    (refused,) = problems(table, fact, b'{"path":"b"}')
    assert refused.startswith("judged again, it is refused: argument rule not met")
    for raw in (b'{"path": "a"}', b"x"):
        assert problems(table, fact, raw)[0].startswith("it can't be judged again: ")


def test_a_tool_that_no_list_names_or_that_was_defined_otherwise_is_seen() -> None:
    table = Table()  # no start would read what is written here
    fact = called(table, "list")
    by_name = {one.name: one for one in TOOLS}
    unlisted = replace(fact, tool="s.unlisted", tool_digest=by_name["unlisted"].digest)
    assert problems(table, unlisted)[0].startswith("judged again, it is refused: denied by default")
    other = "its tool's definition is not the one that was accepted"
    assert problems(table, replace(fact, tool_digest=digest("other"))) == (other,)
    table.accept(tool("list", description="Other."))
    assert problems(table, fact) == (other,)
    raw = accepted.encode("s", [by_name["find"]])
    table.write(ToolsAccepted("s", ("list",), OPERATOR), (raw,))  # the record names another tool than its bytes
    assert problems(table, fact) == (other,)
    table.write(ToolsAccepted("s", ("list",), OPERATOR))
    assert "has not the one payload" in problems(table, fact)[0]


def test_a_policy_of_other_bytes_than_its_digest_is_seen(table: Table) -> None:
    fact = called(table, "list")
    wide = policy.of(a_policy(name="wide"))
    table.write(PolicyApplied("instance", Digest(bytes.fromhex(fact.policies[0])), OPERATOR), (wide.raw,))
    assert problems(table, fact) == ("judged again, it has another list of policies",)


def test_what_was_dropped_is_told_and_what_is_left_is_still_compared(table: Table) -> None:
    fact = called(table, "list")
    (applied,) = (one.payloads for one in table.records if isinstance(one.fact, PolicyApplied))
    (tools,) = (one.payloads for one in table.records if isinstance(one.fact, ToolsAccepted))
    (arguments,) = (one.payloads for one in table.records if isinstance(one.fact, CallClaimed))
    lie = claimed(table, replace(fact, tool_digest=digest("other")))
    name = f"policy {fact.policies[0][:12]}"
    kept = dict(table.bytes)
    for refs, gone in ((applied, name), (tools, "tools of s"), (arguments, "arguments")):
        table.bytes = {ref: raw for ref, raw in kept.items() if ref not in refs}
        honest, lying = judged(table, lie)
        assert honest == ((), (gone,))
        assert bool(lying[0]) is (gone != "tools of s")
