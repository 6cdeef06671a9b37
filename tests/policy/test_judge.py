"""The judgement: the table of tier and class, the layers, and no name that slips past a list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rules.authority import Allow, Call, Code, Deny, RequireApproval, Unresolved, judge
from tests.policy.samples import AGENT, TAME, WHOLE, ask, one_tool, outcome, policy_of, tool
from tests.wire.samples import FUZZ

READ, MUTATION = {"class": "read"}, {"class": "mutation"}
PATH = [{"pointer": "/path", "kind": "path"}]


@pytest.mark.promise("P19")
@pytest.mark.parametrize(
    ("tier", "entry", "annotations", "expected"),
    [
        ("allowed", READ, {}, "automatic"),
        ("allowed", READ | {"account": "work"}, {}, "lease"),
        ("allowed", READ | {"account": "payroll"}, {}, "act"),
        ("allowed", MUTATION, {}, "act"),
        ("allowed", MUTATION | {"account": "work"}, {}, "act"),
        ("allowed", {}, {}, "act"),
        ("allowed", {}, {"readOnlyHint": True}, "act"),
        ("allowed", MUTATION, {"readOnlyHint": True}, "act"),
        ("allowed", READ, {"destructiveHint": True}, "act"),
        ("allowed", READ, {"readOnlyHint": False, "openWorldHint": True}, "automatic"),
        ("allowed", MUTATION | {"consent": "none"}, TAME, "automatic"),
        ("allowed", MUTATION | {"consent": "none"}, {}, "act"),
        ("allowed", MUTATION | {"consent": "none"}, {"readOnlyHint": True}, "act"),
        ("allowed", MUTATION | {"consent": "none"}, {"destructiveHint": False}, "act"),
        ("allowed", MUTATION | {"consent": "none"}, {"openWorldHint": False}, "act"),
        ("allowed", MUTATION | {"consent": "none"}, TAME | {"destructiveHint": True}, "act"),
        ("allowed", MUTATION | {"consent": "none"}, TAME | {"openWorldHint": True}, "act"),
        ("approval", READ, {}, "act"),
        ("approval", READ | {"account": "work"}, {}, "act"),
        ("approval", MUTATION, {}, "act"),
        ("approval", MUTATION | {"consent": "none"}, TAME, "act"),
        ("approval", {}, {}, "act"),
        ("denied", READ, {}, "denied_by_rule"),
        ("denied", MUTATION | {"consent": "none"}, TAME, "denied_by_rule"),
    ],
)
def test_the_table_of_tier_and_class(tier: str, entry: dict[str, Any], annotations: Any, expected: str) -> None:
    assert outcome(ask(tool(**annotations), one_tool(entry, tier=tier))) == expected


DESTROYS = tool(destructiveHint=True)
REVIEWED = READ | {"reviewed": f"sha256:{DESTROYS.digest.hex()}"}


@pytest.mark.promise("P22")
@pytest.mark.parametrize(
    ("entry", "tier", "expected"),
    [
        (REVIEWED, "allowed", "automatic"),
        (REVIEWED | {"account": "work"}, "allowed", "lease"),
        (REVIEWED | {"account": "payroll"}, "allowed", "act"),
        (REVIEWED, "approval", "act"),
        (REVIEWED, "denied", "denied_by_rule"),
    ],
)
def test_a_read_that_its_server_calls_destructive_is_one_once_this_definition_was_reviewed(
    entry: dict[str, Any], tier: str, expected: str
) -> None:
    told = ask(DESTROYS, one_tool(entry, tier=tier))
    assert outcome(told) == expected
    if tier == "allowed":
        assert any("it was reviewed" in step.text for step in told.steps)


@pytest.mark.promise("P22")
def test_another_definition_another_tool_and_a_narrower_layers_word_are_not_reviewed() -> None:
    changed = tool(schema={"title": "Another."}, destructiveHint=True)
    told = ask(changed, one_tool(REVIEWED))
    assert outcome(told) == "act"
    assert any("not the definition that was reviewed" in step.text for step in told.steps)
    other = tool("files.list", destructiveHint=True)
    assert outcome(ask(other, one_tool(REVIEWED, name="files.list"))) == "act"
    assert outcome(ask(DESTROYS, [one_tool(READ), one_tool(REVIEWED)])) == "act"
    assert outcome(ask(DESTROYS, [one_tool(REVIEWED), one_tool(MUTATION)])) == "act"


@pytest.mark.promise("P19")
def test_a_tool_in_no_list_is_refused_and_so_is_every_tool_without_a_policy() -> None:
    policy = policy_of(("files.read",), tools={"files.write": {"class": "mutation"}})
    told = ask(tool("files.write"), policy).decision
    assert told == Deny(Code.DENIED_BY_DEFAULT, f"denied by default: in no list of policy {policy.version}")
    assert outcome(ask(tool(), [])) == "denied_by_default"


def test_the_reason_names_the_rule_and_the_version() -> None:
    policy = policy_of((), ("files.w*",), ("*.*delete*",))
    by_rule = ask(tool("files.delete"), policy).decision
    assert by_rule == Deny(Code.DENIED_BY_RULE, f"denied by rule `*.*delete*` of policy {policy.version}")
    asked = ask(tool("files.write"), policy).decision
    assert isinstance(asked, RequireApproval)
    assert asked.reason.startswith(f"approval required by `files.w*` of policy {policy.version}; unclassified")


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ((("files.read",), ("files.*",), ()), "act"),
        ((("files.read",), (), ("files.*",)), "denied_by_rule"),
        ((("files.read",), (), ("*.*",)), "denied_by_rule"),
        (((), ("files.read",), ("fil?s.re*",)), "denied_by_rule"),
        (((), ("files.rea?",), ()), "act"),
        ((("files.read2",), (), ()), "denied_by_default"),
        ((("files.Read",), (), ()), "denied_by_default"),
        (((), ("FILES.READ",), ()), "act"),
        (((), (), ("Files.R*",)), "denied_by_rule"),
        (((), ("files.rea",), ()), "denied_by_default"),
        (((), ("iles.read",), ()), "denied_by_default"),
        (((), ("files.re.d",), ()), "denied_by_default"),
        (((), (), ("file?.read", "x.y")), "denied_by_rule"),
    ],
)
def test_deny_beats_approval_beats_allow(lists: Any, expected: str) -> None:
    assert outcome(ask(tool(), policy_of(*lists, tools={"files.read": READ}))) == expected


@pytest.mark.parametrize(
    "name", ["FILES.read", "files.READ", "files.read ", "files.read\u200b", "files/read", "read", "files.read.x"]
)
def test_another_spelling_is_another_tool(name: str) -> None:
    told = judge(tool(), [one_tool(READ)], Call(AGENT, name, {})).decision
    assert isinstance(told, Deny)
    assert told.code is Code.UNKNOWN_TOOL


@pytest.mark.parametrize("name", ["READ", "Read"])
def test_a_tool_whose_name_differs_in_case_is_not_the_allowed_one_but_is_the_denied_one(name: str) -> None:
    assert outcome(ask(tool(f"files.{name}"), one_tool(READ))) == "denied_by_default"
    assert outcome(ask(tool(f"files.{name}"), policy_of((), (), ("files.re*",)))) == "denied_by_rule"


@pytest.mark.promise("P22")
@pytest.mark.parametrize("why", Unresolved)
def test_without_a_pinned_tool_nothing_else_is_looked_at(why: Unresolved) -> None:
    judged = judge(why, [one_tool(READ)], Call(AGENT, "files.read", {}))
    assert outcome(judged) == str(why)
    assert [step.number for step in judged.steps] == [4]


STRICTNESS = {"automatic": 0, "lease": 1, "act": 2}


@pytest.mark.parametrize(
    ("instance", "agent", "expected"),
    [
        ((("files.read",), (), ()), (("files.read",), (), ()), "automatic"),
        ((("files.read",), (), ()), ((), ("files.read",), ()), "act"),
        (((), ("files.read",), ()), (("files.read",), (), ()), "act"),
        ((("files.read",), (), ()), ((), (), ()), "denied_by_default"),
        (((), (), ()), (("files.read",), (), ()), "denied_by_default"),
        (((), ("files.read",), ()), ((), (), ()), "denied_by_default"),
        ((("files.read",), (), ()), ((), (), ("files.*",)), "denied_by_rule"),
        (((), (), ("files.*",)), (("files.read",), (), ()), "denied_by_rule"),
        (((), (), ()), ((), (), ("files.*",)), "denied_by_rule"),
    ],
)
def test_layers_combine_to_the_strictest(instance: Any, agent: Any, expected: str) -> None:
    layers = [policy_of(*lists, tools={"files.read": READ}) for lists in (instance, agent)]
    assert outcome(ask(tool(), layers)) == expected


def layered(instance: dict[str, Any], agent: dict[str, Any], arguments: Any = None, **annotations: bool) -> str:
    return outcome(ask(tool(**annotations), [one_tool(instance), one_tool(agent)], arguments))


def test_a_further_layer_tightens_and_never_loosens() -> None:
    assert layered({}, READ) == "act"
    assert layered(READ, {}) == "automatic"
    assert layered(READ, MUTATION) == "act"
    assert layered(MUTATION, READ) == "act"
    assert layered(MUTATION, MUTATION | {"consent": "none"}, **TAME) == "act"
    assert layered(MUTATION | {"consent": "none"}, MUTATION, **TAME) == "act"
    assert layered(READ | {"account": "work"}, READ) == "lease"
    assert layered(READ | {"account": "payroll"}, READ | {"account": "work"}) == "unknown_account"
    assert layered(READ, READ | {"account": "work"}) == "unknown_account"
    assert layered(READ, READ | {"rules": [{"pointer": "/p", "equals": 1}]}, {"p": 2}) == "denied_by_argument"
    assert layered(MUTATION, MUTATION | {"resources": PATH}) == "missing_resource"


def test_an_account_is_as_strict_as_any_layer_has_it() -> None:
    entry = READ | {"account": "work"}
    instance = one_tool(entry, accounts={"work": {"lease_seconds": 60, "lease_operations": 5}})
    shorter = one_tool(entry, accounts={"work": {"lease_seconds": 300, "lease_operations": 3}})
    judged = ask(tool(), [instance, shorter])
    assert judged.lease is not None
    assert (judged.lease.lease_seconds, judged.lease.lease_operations) == (60, 3)
    sensitive = one_tool(entry, accounts={"work": {"sensitive": True}})
    assert outcome(ask(tool(), [instance, sensitive])) == outcome(ask(tool(), [sensitive, instance])) == "act"


NAMES = st.sampled_from(["files.read", "files.write", "mail.read", "mail.send", "scratch.note", "x.delete"])
LISTS = st.lists(NAMES, max_size=2, unique=True)


@FUZZ
@given(data=st.data(), name=NAMES)
def test_no_added_layer_ever_widens(data: st.DataObject, name: str) -> None:
    def drawn() -> Any:
        names = data.draw(st.permutations(["files.read", "files.write", "mail.read", "mail.send", "x.delete"]))
        cut, again = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
        first, second = sorted((cut, again))
        entries = st.sampled_from([READ, MUTATION, {}, MUTATION | {"consent": "none"}, READ | {"account": "work"}])
        return policy_of(
            tuple(names[:first]),
            tuple(names[first:second]),
            (),
            accounts={"work": {}},
            tools={name: data.draw(entries)},
        )

    layers = [drawn() for _ in range(data.draw(st.integers(1, 3)))]
    added = drawn()
    pinned = tool(name, **TAME)
    before, after = (STRICTNESS.get(outcome(ask(pinned, each)), 3) for each in (layers, [*layers, added]))
    assert after >= before


def test_the_steps_are_numbered_and_end_with_the_decision() -> None:
    told = ask(tool("mail.read"), policy_of(("mail.read",), tools={"mail.read": READ}))
    assert [step.number for step in told.steps] == [4, 5, 6, 7, 9]
    assert isinstance(told.decision, Allow)
    assert told.steps[-1].text == f"automatic: {told.decision.reason}"
    denied = ask(tool("files.read"), WHOLE, {"paths": ["/srv/a/x", "/etc/x"], "other": 1})
    assert [step.number for step in denied.steps] == [4, 5, 6, 7, 8]
    assert isinstance(denied.decision, Deny)
    assert denied.steps[-1].text == denied.decision.reason
    assert denied.policies == (WHOLE.digest,)
