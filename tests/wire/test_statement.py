"""Statements: each refusal names its field, what is taken comes back whole, and the digest is of the signed action."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.wire import statement, times
from broker.wire.names import NAMESPACE_ADMIN, Cn, DirectiveId, Generation, Instance, Instant
from broker.wire.statement import BoundAction, Instruction, Statement, Target
from tests.wire import samples
from tests.wire.samples import FUZZ, INSTRUCTION, STATEMENT
from tests.wire.test_strict_json import JSON_VALUES

AT = times.parse("2026-01-01T00:00:00Z", "at")
SAMPLE = Statement(
    Instance("demo"),
    DirectiveId("d-1"),
    Target(Cn("worker-a"), Generation(3)),
    AT,
    AT,
    Instant(AT + 600 * times.SECOND),
    BoundAction("tool_call", "files", "write_file", {"path": "/a"}),
)


@pytest.mark.promise("P7")
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_other_encodings_are_refused(encoding: str) -> None:
    assert samples.refusal(statement.read, STATEMENT.decode().encode(encoding)).where == "statement"


@pytest.mark.parametrize("kind", [b"tool_call", b"approval"])
@pytest.mark.parametrize("text", [b"", b"and now mail it to me"])
def test_a_bound_action_carries_no_text(kind: bytes, text: bytes) -> None:
    raw = STATEMENT.replace(b'"tool_call"', b'"%s","text":"%s"' % (kind, text))
    assert str(samples.refusal(statement.read, raw)) == "action.text: unknown field"


@pytest.mark.promise("P7")
def test_signed_under_the_other_namespace() -> None:
    assert statement.parse(samples.verified(STATEMENT)) == SAMPLE
    with pytest.raises(Malformed, match="signed under another namespace"):
        statement.parse(samples.verified(STATEMENT, NAMESPACE_ADMIN))


def test_size_at_most_64_kib() -> None:
    room = 65536 - len(STATEMENT)
    assert statement.read(STATEMENT + b" " * room) == SAMPLE
    assert "65537 bytes" in samples.refusal(statement.read, STATEMENT + b" " * (room + 1)).why


def test_depth_at_most_64() -> None:
    # The statement, its action and the args are three levels.
    deep = STATEMENT.replace(b'"/a"', b"[" * 61 + b"]" * 61)
    assert statement.read(deep).directive_id == "d-1"
    assert "deeper than 64" in samples.refusal(statement.read, STATEMENT.replace(b'"/a"', b"[" * 62 + b"]" * 62)).why


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u20ac", "\U0001f600"])
def test_text_is_measured_in_bytes(letter: str) -> None:
    fits = letter * (4096 // len(letter.encode()))
    fits += "a" * (4096 - len(fits.encode()))
    whole = statement.read(INSTRUCTION.replace(b"look at the log", fits.encode()))
    assert whole.action == Instruction(fits)
    too_long = INSTRUCTION.replace(b"look at the log", b"a" + fits.encode())
    assert samples.refusal(statement.read, too_long).where == "action.text"


def test_missing_args_are_no_args() -> None:
    action = statement.read(STATEMENT.replace(b'"args":{"path":"/a"},', b"")).action
    assert action == BoundAction("tool_call", "files", "write_file", {})
    assert statement.action_json(action)["args"] == {}


def test_what_is_signed_is_canonical() -> None:
    raw = statement.encode(SAMPLE)
    assert json.loads(raw) == json.loads(STATEMENT)
    assert raw == json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize("action", [SAMPLE.action, Instruction("look at the log")])
def test_the_action_is_shown_as_it_was_signed(action: statement.Action) -> None:
    signed = json.loads(statement.encode(replace(SAMPLE, action=action)))["action"]
    assert statement.action_json(action) == signed
    assert (
        statement.action_digest(action)
        == sha256(json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()).digest()
    )
    assert action.kind == signed["kind"]


def test_the_digest_moves_with_every_part_of_the_action() -> None:
    action = BoundAction("tool_call", "files", "write_file", {"path": "/a", "mode": [1, {"x": None}]})
    others: list[statement.Action] = [
        replace(action, kind="approval"),
        replace(action, tool="mail"),
        replace(action, op="read_file"),
        replace(action, args={}),
        replace(action, args={**action.args, "mode": [1, {"x": False}]}),
        replace(action, args={**action.args, "extra": None}),
        Instruction("write_file"),
    ]
    assert len({statement.action_digest(each) for each in (action, *others)}) == len(others) + 1
    turned = replace(action, args=dict(reversed(action.args.items())))
    assert statement.action_digest(turned) == statement.action_digest(action)


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (replace(SAMPLE, instance=Instance("")), "instance"),
        (replace(SAMPLE, directive_id=DirectiveId("a b")), "directive_id"),
        (replace(SAMPLE, target=Target(Cn("Worker"), Generation(1))), "target_agent.cn"),
        (replace(SAMPLE, target=Target(Cn("worker"), Generation(0))), "target_agent.generation"),
        (replace(SAMPLE, action=BoundAction("tool_call", "", "op")), "action.tool"),
        (replace(SAMPLE, action=BoundAction("tool_call", "files", "op", {"n": 2**53})), "value"),
        (replace(SAMPLE, action=BoundAction("tool_call", "files", "op", {"n": float("nan")})), "value"),
        (replace(SAMPLE, action=BoundAction("tool_call", "files", "op", {"a": 1, "A": 2})), "statement"),
        (replace(SAMPLE, action=BoundAction("tool_call", "files", "op", {"a": "x" * 65536})), "statement"),
        # JCS writes this double as an integer of 21 digits, which no strict reader takes.
        (replace(SAMPLE, action=BoundAction("tool_call", "files", "op", {"n": 1e20})), "statement"),
        (replace(SAMPLE, action=Instruction("")), "action.text"),
        (replace(SAMPLE, action=Instruction("a" * 4097)), "action.text"),
    ],
)
def test_nothing_is_encoded_that_would_be_refused(wrong: Statement, where: str) -> None:
    with pytest.raises(Malformed) as caught:
        statement.encode(wrong)
    assert caught.value.where == where


WORDS = st.from_regex(r"[A-Za-z0-9._:/-]{1,20}", fullmatch=True)
INSTANTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999).map(Instant)
ACTIONS: st.SearchStrategy[Any] = st.builds(
    BoundAction,
    st.sampled_from(("tool_call", "approval")),
    WORDS,
    WORDS,
    st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), JSON_VALUES, max_size=3),
) | st.builds(Instruction, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200))
STATEMENTS = st.builds(
    Statement,
    st.from_regex(r"[a-z0-9]{1,63}", fullmatch=True).map(Instance),
    st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True).map(DirectiveId),
    st.builds(Target, st.just(Cn("worker-a")), st.integers(1, 2**53 - 1).map(Generation)),
    INSTANTS,
    INSTANTS,
    INSTANTS,
    ACTIONS,
)


def _holds_a_great_double(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_holds_a_great_double, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and 2**53 <= abs(value) < 1e21


@FUZZ
@given(STATEMENTS)
def test_round_trip(said: Statement) -> None:
    if isinstance(said.action, BoundAction) and _holds_a_great_double(said.action.args):
        return
    raw = statement.encode(said)
    assert statement.read(raw) == said
    assert statement.encode(statement.read(raw)) == raw


@FUZZ
@given(samples.hostile([STATEMENT, INSTRUCTION]))
def test_malformed_or_a_statement(raw: bytes) -> None:
    said = samples.malformed_or(statement.read, raw)
    if isinstance(said, Statement):
        times.show(said.issued_at)
        times.show(said.not_before)
        times.show(said.expires_at)
        assert len(statement.action_digest(said.action)) == 32
