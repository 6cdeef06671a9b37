"""The judgement: the table of tier and class, the layers, and every known way to slip past a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rules.authority import Allow, Call, Code, Deny, RequireApproval, Unresolved, judge
from broker.wire.frozen import freeze
from broker.wire.operands import Kind
from broker.wire.policy import Tier, ToolClass
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


SCHEMA = {
    "properties": {"path": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array", "maxItems": 2}},
    "required": ["path"],
}


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({}, "/"),
        ({"path": 1}, "/path"),
        ({"path": "/a", "n": True}, "/n"),
        ({"path": "/a", "n": "1"}, "/n"),
        ({"path": "/a", "n": 1.5}, "/n"),
        ({"path": "/a", "n": 2**53}, "value"),
        ({"path": "/a", "n": 1e20}, "arguments"),
        ({"path": "/a", "list": [1, 2, 3]}, "/list"),
        ({"path": "/a", "file": "/etc/passwd"}, "/"),
        ({"path": "/a", "Path": "/etc/passwd"}, "arguments"),
        ([], "arguments"),
        ("path", "arguments"),
        (None, "arguments"),
    ],
)
def test_arguments_that_do_not_fit(arguments: Any, where: str) -> None:
    told = judge(tool(schema=SCHEMA), [one_tool(READ)], Call(AGENT, "files.read", arguments)).decision
    assert isinstance(told, Deny)
    assert (told.code, told.pointer) == (Code.INVALID_ARGUMENTS, where)


@pytest.mark.promise("P30")
def test_no_refusal_repeats_a_value() -> None:
    secret = "hunter2"
    schema = {"properties": {"path": {"type": "string", "maxLength": 3, "pattern": "^/"}, "n": {"type": "integer"}}}
    for arguments in ({"path": secret}, {"n": secret}, {"path": [secret]}):
        assert secret not in repr(ask(tool(schema=schema), one_tool(READ), arguments).decision)
    for test in ({"equals": "a"}, {"prefix": "/a"}, {"host_in": "a"}, {"max_length": 3}, {"min": 1}, {"absent": True}):
        policy = one_tool(READ | {"rules": [{"pointer": "/p", **test}]})
        assert secret not in repr(ask(tool(), policy, {"p": secret}).decision)


def test_a_name_that_the_agent_chose_can_not_disguise_a_refusal() -> None:
    schema = {"additionalProperties": {"type": "integer"}}
    judged = ask(tool(schema=schema), one_tool(READ), {"a\n\u202e" + "b" * 900: "x"})
    assert isinstance(judged.decision, Deny)
    assert judged.decision.reason.isprintable()
    assert len(judged.decision.reason) < 500


@pytest.mark.parametrize("pattern", ["(?=a)(a+)+$(?<=c)", "(a)\\1*(a+)+c"])
def test_a_value_that_makes_a_pattern_run_away_fits_neither_it_nor_its_opposite(pattern: str) -> None:
    for part in ({"pattern": pattern}, {"not": {"pattern": pattern}}):
        pinned = tool(schema={"properties": {"a": part}})
        assert outcome(ask(pinned, one_tool(READ), {"a": "a" * 5000 + "!"})) == "invalid_arguments"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://schemas.example/a"},
        {"properties": {"a": {"$ref": "file:///etc/hostname"}}},
        {"properties": {"a": {"$ref": "#/$defs/none"}}},
        {"$schema": "https://schemas.example/dialect"},
        {"properties": {"a": {"type": "strin"}}},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_does_not_stand_by_itself_refuses_every_call(schema: dict[str, Any]) -> None:
    assert outcome(ask(tool(schema=schema), one_tool(READ), {"a": "b"})) == "invalid_arguments"


def test_a_schema_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "any.json").write_text("{}")
    schema = {"properties": {"a": {"$ref": f"file://{tmp_path}/any.json"}}}
    assert outcome(ask(tool(schema=schema), one_tool(READ), {"a": "b"})) == "invalid_arguments"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": {}}}, "invalid_arguments"),
        ({"properties": {"a": {}}, "additionalProperties": True}, "automatic"),
        ({"properties": {"a": {}}, "patternProperties": {"^b": {}}}, "automatic"),
        ({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}, "automatic"),
        ({"properties": {"a": {}}, "$schema": "http://json-schema.org/draft-07/schema#"}, "invalid_arguments"),
        ({}, "automatic"),
    ],
)
def test_an_argument_that_the_schema_does_not_name(schema: dict[str, Any], expected: str) -> None:
    assert outcome(ask(tool(schema=schema), one_tool(READ), {"b": 1})) == expected


def test_what_is_decided_on_is_what_is_frozen() -> None:
    judged = ask(tool(schema=SCHEMA), one_tool(READ | {"resources": PATH}), {"path": "/srv/a/", "n": 1.0})
    assert judged.frozen == freeze({"n": 1, "path": "/srv/a/"})
    assert [(found.kind, found.value) for found in judged.resources] == [(Kind.PATH, "/srv/a")]
    assert (judged.tier, judged.tool_class, judged.account) == (Tier.ALLOWED, ToolClass.READ, None)


ACCOUNT = READ | {"account": {"pointer": "/account"}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"account": "work"}, "lease"),
        ({"account": "payroll"}, "act"),
        ({"account": "Work"}, "unknown_account"),
        ({"account": "work "}, "unknown_account"),
        ({"account": ["work"]}, "unknown_account"),
        ({"account": {"name": "work"}}, "unknown_account"),
        ({"account": None}, "unknown_account"),
        ({}, "unknown_account"),
        ({"accounts": "work"}, "unknown_account"),
    ],
)
def test_the_account_is_one_that_the_policy_knows(arguments: Any, expected: str) -> None:
    assert outcome(ask(tool(), one_tool(ACCOUNT), arguments)) == expected


@pytest.mark.parametrize(
    ("pointer", "arguments", "read", "mutation"),
    [
        ("/path", {"path": "/a"}, "automatic", "act"),
        ("/path", {}, "automatic", "missing_resource"),
        ("/path", {"path": None}, "automatic", "missing_resource"),
        ("/path", {"path": ["/a", "/b"]}, "ambiguous_operand", "ambiguous_operand"),
        ("/path", {"path": {"a": "/a"}}, "ambiguous_operand", "ambiguous_operand"),
        ("/path", {"path": 5}, "ambiguous_operand", "ambiguous_operand"),
        ("/path", {"path": "/a/../b"}, "ambiguous_operand", "ambiguous_operand"),
        ("/path", {"path": ""}, "ambiguous_operand", "ambiguous_operand"),
        ("/path/*", {"path": ["/a", "/b"]}, "automatic", "act"),
        ("/path/*", {"path": "/a"}, "ambiguous_operand", "ambiguous_operand"),
        ("/path/*", {"path": {"0": "/a"}}, "ambiguous_operand", "ambiguous_operand"),
        ("/path/*", {"path": []}, "automatic", "missing_resource"),
        ("/path/*", {"path": ["/a", "/../b"]}, "ambiguous_operand", "ambiguous_operand"),
        ("/path/*", {"path": ["/a", None]}, "automatic", "missing_resource"),
        ("/path/*", {"path": [["/a"]]}, "ambiguous_operand", "ambiguous_operand"),
        ("/ops/*/path", {"ops": [{"path": "/a"}, {"path": "/b"}]}, "automatic", "act"),
        ("/ops/*/path", {"ops": [{"path": "/a"}, {"file": "/b"}]}, "automatic", "missing_resource"),
        ("/ops/*/path", {"ops": [{"path": "/a"}, "/b"]}, "ambiguous_operand", "ambiguous_operand"),
    ],
)
def test_resources(pointer: str, arguments: Any, read: str, mutation: str) -> None:
    for entry, expected in ((READ, read), (MUTATION, mutation)):
        policy = one_tool(entry | {"resources": [{"pointer": pointer, "kind": "path"}]})
        assert outcome(ask(tool(), policy, arguments)) == expected


def test_every_target_of_a_batch_is_a_resource() -> None:
    entry = MUTATION | {"resources": [{"pointer": "/to/*/id", "kind": "id"}, *PATH]}
    targets = [{"id": f"t{number}"} for number in range(200)]
    judged = ask(tool(), one_tool(entry), {"to": [*targets, {"id": "t0"}, {"id": 0}], "path": "/a"})
    assert [found.value for found in judged.resources] == [*(f"t{number}" for number in range(200)), 0, "/a"]


def ruled(arguments: Any, *rules: dict[str, Any], entry: dict[str, Any] = READ) -> str:
    return outcome(ask(tool(), one_tool(entry | {"rules": [*rules]}), arguments))


@pytest.mark.parametrize(
    ("test", "holding", "failing", "denied"),
    [
        ({"equals": 1}, [1, 1.0], ["1", True, 2, 1.5, [1], {}], [None]),
        ({"equals": "1"}, ["1"], [1, 1.0, "1 ", ["1"]], [None]),
        ({"equals": True}, [True], [1, "true", False], [None]),
        ({"in": ["a", 2]}, ["a", 2], ["A", "2", ["a", 2], "a\u200b"], [None]),
        (
            {"prefix": ["/srv/a", "b"]},
            ["/srv/a", "/srv/a/x", "/srv/a/", "b/c"],
            ["/srv/ab", "/srv", "/SRV/a", "a", "/b"],
            ["/srv/a/../b", "/srv/a/./x", "//srv/a", "/srv/a/%2e%2e/x", "/srv/a\\..\\x", 1, ["/srv/a"], "", None],
        ),
        ({"min": 1, "max": 5}, [1, 5, 2.0], [0, 6, -1], ["3", True, 2.5, [3], None]),
        ({"max": 5}, [5, -(2**53) + 1], [6], ["3", False]),
        ({"max_length": 2}, ["", "ab", [], [1, 2]], ["abc", [1, 2, 3]], [1, True, {}, None]),
        (
            {"host_in": ["a.example"]},
            ["a.example", "A.example", "https://a.example/x", "a.example:443"],
            ["b.example", "x.a.example", "https://a.example.evil.example", "127.0.0.1"],
            [
                "https://a.example@b.example",
                "a.example.",
                "https://b.example\\@a.example",
                "2130706433",
                ["a.example"],
                1,
            ],
        ),
        ({"absent": True}, [], [1, None, "", False, [], {}], []),
    ],
)
def test_an_argument_rule(test: dict[str, Any], holding: Any, failing: Any, denied: Any) -> None:
    for value in holding:
        assert ruled({"p": value}, {"pointer": "/p", **test}) == "automatic", value
    for value in failing:
        assert ruled({"p": value}, {"pointer": "/p", **test}) == "denied_by_argument", value
        assert ruled({"p": value}, {"pointer": "/p", "otherwise": "approval", **test}) == "act", value
    for value in denied:
        assert ruled({"p": value}, {"pointer": "/p", "otherwise": "approval", **test}) == "denied_by_argument", value
    alone = "automatic" if "absent" in test else "denied_by_argument"
    assert ruled({"q": 1}, {"pointer": "/p", "otherwise": "approval", **test}) == alone


def test_a_rule_holds_for_every_element_or_for_none() -> None:
    rule = {"pointer": "/paths/*", "prefix": "/srv"}
    assert ruled({"paths": ["/srv/a", "/srv/b"]}, rule) == "automatic"
    for paths in (["/srv/a", "/etc"], [], "/srv/a", {"0": "/srv/a"}, ["/srv/a", None], [["/srv/a"]], None):
        assert ruled({"paths": paths}, rule) == "denied_by_argument", paths


def test_a_rule_under_an_argument_of_another_shape_denies() -> None:
    rule = {"pointer": "/options/force", "absent": True}
    assert ruled({"options": {}}, rule) == ruled({}, rule) == "automatic"
    for options in ("force", [{"force": True}], True, {"force": None}):
        assert ruled({"options": options}, rule) == "denied_by_argument", options


def test_a_rule_may_only_tighten() -> None:
    met, unmet = {"pointer": "/p", "equals": 1}, {"pointer": "/p", "equals": 2, "otherwise": "approval"}
    assert ruled({"p": 1}, met, entry=MUTATION) == "act"
    assert ruled({"p": 1}, met, entry=READ | {"account": "payroll"}) == "act"
    assert ruled({"p": 1}, met, unmet, entry=READ | {"account": "work"}) == "act"
    assert ruled({"p": 1}, unmet, {"pointer": "/p", "equals": 3}) == "denied_by_argument"
    unmet_exempt = one_tool(MUTATION | {"consent": "none", "rules": [unmet]})
    assert outcome(ask(tool(**TAME), unmet_exempt, {"p": 1})) == "act"


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


@FUZZ
@given(
    arguments=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["paths", "root", "account", "limit", "folder", "text", "url"]), inner)
        ),
    ),
    name=NAMES,
)
def test_nothing_is_raised_whatever_the_arguments(arguments: Any, name: str) -> None:
    judged = ask(tool(name), WHOLE, arguments)
    assert judged.regime or isinstance(judged.decision, Deny)
