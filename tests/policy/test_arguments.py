"""Arguments under judgement: the schema, accounts, resources, argument rules, and every known way to slip past them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rules.authority import Call, Code, Deny, judge
from broker.wire.frozen import freeze
from broker.wire.operands import Kind
from broker.wire.policy import Tier, ToolClass
from tests.policy.samples import AGENT, TAME, WHOLE, ask, one_tool, outcome, tool
from tests.wire.samples import FUZZ

READ, MUTATION = {"class": "read"}, {"class": "mutation"}
PATH = [{"pointer": "/path", "kind": "path"}]


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
        ({"path": "/a", "n": 2**53}, "/n"),
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


TWIN = {"type": "object", "properties": {"c": {"$ref": "#/$defs/node"}}, "required": ["c", "k"]}
NODE = {"anyOf": [TWIN | {"not": {"required": ["a"]}}, TWIN | {"not": {"required": ["b"]}}, {"type": "string"}]}


@pytest.mark.promise("P11")
@pytest.mark.parametrize("alternatives", ["anyOf", "oneOf"])
def test_arguments_that_fit_none_of_many_alternatives_are_refused_at_once(alternatives: str) -> None:
    """Whoever gathers what is wrong with each of them gathers for ever: this ends the process, not the test alone."""
    node = {alternatives: NODE["anyOf"]}
    pinned = tool(schema={"properties": {"f": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})
    value: Any = 1
    for _ in range(60):
        value = {"c": value, "k": "a"}
    told = ask(pinned, one_tool(READ), {"f": value}).decision
    assert isinstance(told, Deny)
    assert (told.code, told.pointer) == (Code.INVALID_ARGUMENTS, "/f")


def doubled(keyword: str, anchor: bool = False) -> dict[str, Any]:
    """Forty definitions of which each names the next one twice."""

    def next_one(n: int) -> dict[str, Any]:
        return {"$ref": f"#d{n + 1}" if anchor else f"#/$defs/d{n + 1}"}

    defs: dict[str, Any] = {f"d{n}": {keyword: [next_one(n), next_one(n)]} for n in range(40)} | {"d40": {}}
    if anchor:
        defs = {name: {**schema, "$anchor": name} for name, schema in defs.items()}
    return {"properties": {"a": {"$ref": "#d0" if anchor else "#/$defs/d0"}}, "$defs": defs}


@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    "schema",
    [
        *(doubled(keyword) for keyword in ("allOf", "anyOf", "oneOf")),
        doubled("allOf", anchor=True),
        {"$id": "https://a.example/s", **doubled("allOf")},
        {"properties": {"a": doubled("allOf") | {"$id": "https://a.example/s"}}},
        {"$defs": {"a": {"$anchor": "one"}, "b": {"$anchor": "one"}}, "properties": {"a": {"$ref": "#one"}}},
        {"properties": {"a": {"items": {"allOf": [{"enum": [{"a": n} for n in range(900)]}] * 20}}}},
        {"properties": {"a": {"not": {"const": [0] * 10_000}}}},
    ],
)
def test_a_schema_that_looks_at_a_value_without_end_refuses_every_call(schema: dict[str, Any]) -> None:
    told = ask(tool(schema=schema), one_tool(READ), {"a": "b"}).decision
    assert isinstance(told, Deny)
    assert (told.code, told.pointer) == (Code.INVALID_ARGUMENTS, "inputSchema")


@pytest.mark.promise("P11")
@pytest.mark.parametrize(
    "more",
    [
        {"properties": {f"b{n}": {"pattern": "^b$"} for n in range(64)}},
        {"$defs": {"b": {"patternProperties": {f"^b{n}$": {} for n in range(64)}}}},
        {"properties": {"b": {"pattern": "((a{100}){100}){100}"}}},
        {"properties": {"b": {"pattern": "^(?:[^/]{1,255}/){0,8}[^/]{1,255}$"}}},
    ],
    ids=["many", "many of names", "no library's size", "one that compiles to megabytes"],
)
def test_patterns_that_take_long_to_compile_refuse_every_call(more: dict[str, Any]) -> None:
    """Each of these in its thousands is seconds of the broker at the tool's first call."""
    patterns = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "^\\w{1,255}$", "^\\S(?:.{0,253}\\S)?$"
    few = {"properties": {"a": {"pattern": "|".join(patterns)}}}
    assert outcome(ask(tool(schema=few), one_tool(READ), {"a": "b"})) == "automatic"
    many = {**few, **more, "properties": few["properties"] | more.get("properties", {})}
    told = ask(tool(schema=many), one_tool(READ), {"a": "b"}).decision
    assert isinstance(told, Deny)
    assert (told.code, told.pointer) == (Code.INVALID_ARGUMENTS, "inputSchema")


@pytest.mark.promise("P11")
def test_many_values_for_a_schema_that_looks_often_are_refused_unlooked() -> None:
    """4,096 looks are below the bound, 32,000 numbers within a call's size: together they are seconds of the broker."""
    often: dict[str, Any] = {"type": "integer"}
    for _ in range(12):
        often = {"allOf": [often, often]}
    pinned = tool(schema={"properties": {"a": {"items": often}, "b": {"type": "string"}}})
    policy = one_tool(READ)
    assert outcome(ask(pinned, policy, {"a": [0] * 600, "b": "c" * 60_000})) == "automatic", "a text is one value"
    told = ask(pinned, policy, {"a": [0] * 32_000}).decision
    assert isinstance(told, Deny)
    assert (told.code, told.pointer) == (Code.INVALID_ARGUMENTS, "/")


@pytest.mark.parametrize("anchor", [[1], {}, 7, None])
def test_an_anchor_that_is_no_text_is_none(anchor: object) -> None:
    """It may stand in what is no schema at all, as a default."""
    pinned = tool(schema={"properties": {"a": {"default": {"$anchor": anchor, "$dynamicAnchor": anchor}}}})
    assert outcome(ask(pinned, one_tool(READ), {"a": "b"})) == "automatic"


@pytest.mark.promise("P11")
def test_what_does_not_fit_is_named_as_long_as_naming_it_is_cheap() -> None:
    """Each keyword of each argument is compiled with all definitions: of thousands that is seconds of the broker."""

    def refused_at(definitions: int) -> str:
        defs = {f"d{n}": {"maxLength": n, "description": "of some length"} for n in range(definitions)}
        properties = {f"a{n}": {"minLength": 1, "enum": ["b"]} for n in range(100)}
        schema = {"properties": properties, "$defs": defs}
        told = ask(tool(schema=schema), one_tool(READ), dict.fromkeys(properties, "b") | {"a99": "c"}).decision
        assert isinstance(told, Deny)
        assert told.code is Code.INVALID_ARGUMENTS
        return told.pointer

    assert [refused_at(definitions) for definitions in (0, 3, 3000)] == ["/a99", "/a99", "/"]


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/b~1c", "#/$defs/b%7E1c", "#named", "https://a.example/s#named", "https://a.example/s#/$defs/b~1c"],
)
def test_a_definition_is_found_however_it_is_named(reference: str) -> None:
    defs = {"b/c": {"type": "string", "$anchor": "named"}}
    pinned = tool(schema={"$id": "https://a.example/s", "properties": {"a": {"$ref": reference}}, "$defs": defs})
    assert outcome(ask(pinned, one_tool(READ), {"a": "b"})) == "automatic"
    assert outcome(ask(pinned, one_tool(READ), {"a": 1})) == "invalid_arguments"


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
    rule = {"pointer": "/options/force", "absent": True, "otherwise": "approval"}
    assert ruled({"options": {}}, rule) == ruled({}, rule) == "automatic"
    assert ruled({"options": {"force": None}}, rule) == "act"
    for options in ("force", [{"force": True}], True):
        assert ruled({"options": options}, rule) == "denied_by_argument", options


def test_a_rule_may_only_tighten() -> None:
    met, unmet = {"pointer": "/p", "equals": 1}, {"pointer": "/p", "equals": 2, "otherwise": "approval"}
    assert ruled({"p": 1}, met, entry=MUTATION) == "act"
    assert ruled({"p": 1}, met, entry=READ | {"account": "payroll"}) == "act"
    assert ruled({"p": 1}, met, unmet, entry=READ | {"account": "work"}) == "act"
    assert ruled({"p": 1}, unmet, {"pointer": "/p", "equals": 3}) == "denied_by_argument"
    unmet_exempt = one_tool(MUTATION | {"consent": "none", "rules": [unmet]})
    assert outcome(ask(tool(**TAME), unmet_exempt, {"p": 1})) == "act"


@FUZZ
@given(
    arguments=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["paths", "root", "account", "limit", "folder", "text", "url"]), inner)
        ),
    ),
    name=st.sampled_from([*WHOLE.tools]),
)
def test_nothing_is_raised_whatever_the_arguments(arguments: Any, name: str) -> None:
    judged = ask(tool(name), WHOLE, arguments)
    assert judged.regime or isinstance(judged.decision, Deny)
