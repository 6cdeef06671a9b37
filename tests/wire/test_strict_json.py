"""Strict JSON: what is refused, in which words, and that nothing but Malformed ever comes out."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.strict_json import Fields, JsonValue
from tests.wire import samples, vectors
from tests.wire.samples import FUZZ

CANONICAL = vectors.load("canonical")


def parse(raw: bytes) -> JsonValue:
    return strict_json.parse(raw, "body")


@pytest.mark.promise("P7")
@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"a":1,"a":1}', "duplicate key a"),
        (b'{"a":1,"\\u0061":1}', "duplicate key a"),
        (b'[{"b":[{"a":1,"a":1}]}]', "duplicate key a"),
        (b'{"a":1,"b":2,"A":1}', "keys a and A differ only in case"),
        (b'{"":1,"":1}', 'duplicate key ""'),
        (b"1 2", "not one JSON value: Extra data at character 2"),
        (b"{}\x00", "not one JSON value"),
        (b"{},", "not one JSON value"),
        (b"", "not one JSON value"),
        (b"  ", "not one JSON value"),
        (b"\xef\xbb\xbf{}", "starts with a byte order mark"),
        ("{}".encode("utf-16"), "not UTF-8 at byte 0"),
        ("{}".encode("utf-16-le"), "not one JSON value"),
        ("{}".encode("utf-32-be"), "not one JSON value"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\xc0\xaf"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
        (b"NaN", "NaN is not JSON"),
        (b"[Infinity]", "Infinity is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"1e400", "a number too large for a double"),
        (b"-1e400", "a number too large for a double"),
        (b"1" * 400 + b".0", "a number too large for a double"),
        (b"9007199254740992", "an integer beyond"),
        (b"-9007199254740992", "an integer beyond"),
        (b"1" * 5000, "an integer beyond"),
        (b'"\\ud800"', "a lone surrogate"),
        (b'"\\udc00x"', "a lone surrogate"),
        (b'"\\ud800\\ud800"', "a lone surrogate"),
        (b'{"\\ud800":1}', "a lone surrogate"),
        (b'[[{"a":"\\ud800"}]]', "a lone surrogate"),
        (b"01", "not one JSON value"),
        (b"+1", "not one JSON value"),
        (b"1.", "not one JSON value"),
        (b".5", "not one JSON value"),
        (b"0x10", "not one JSON value"),
        (b"1_0", "not one JSON value"),
        ("\u0661".encode(), "not one JSON value"),
        (b"[1,]", "not one JSON value"),
        (b'{"a":1,}', "not one JSON value"),
        (b"{a:1}", "not one JSON value"),
        (b"{'a':1}", "not one JSON value"),
        (b'"a\nb"', "not one JSON value"),
        (b'"a\tb"', "not one JSON value"),
        (b'"\\x41"', "not one JSON value"),
        (b'"\\u00g0"', "not one JSON value"),
        (b"// c\n{}", "not one JSON value"),
        (b"\x0c{}", "not one JSON value"),
        ("\u00a0{}".encode(), "not one JSON value"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "nested deeper than 64"),
        (b"[" * 60000, "nested deeper than 64"),
        (b'{"a":' * 13000, "nested deeper than 64"),
        (b'"' + b"a" * 65535 + b'"', "65537 bytes, more than 65536"),
    ],
    ids=lambda part: repr(part[:24]),
)
def test_refuses(raw: bytes, why: str) -> None:
    error = samples.refusal(parse, raw)
    assert error.where == "body"
    assert error.why.startswith(why)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b" \t\r\n{} \t\r\n", {}),
        (b'{"a":{"b":1},"c":{"b":2}}', {"a": {"b": 1}, "c": {"b": 2}}),
        (b"9007199254740991", 2**53 - 1),
        (b"-9007199254740991", -(2**53) + 1),
        (b"-0", 0),
        (b"1e300", 1e300),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        ('"\U0001f600\ufeff"'.encode(), "\U0001f600\ufeff"),
        (b'"\\\\ud800"', "\\ud800"),
        (b'"' + b"a" * 65534 + b'"', "a" * 65534),
        (b"[" + b"[]," * 100 + b"[]]", [[]] * 101),
        (b'"' + b"[" * 70 + b'"', "[" * 70),
    ],
    ids=lambda part: repr(part)[:24],
)
def test_takes(raw: bytes, value: JsonValue) -> None:
    assert parse(raw) == value


def test_takes_a_depth_of_exactly_64() -> None:
    parse(b"[" * 64 + b"]" * 64)
    parse(b'{"a":' * 64 + b"1" + b"}" * 64)


def test_the_caller_sets_the_size() -> None:
    assert strict_json.parse(b"12345", "body", max_bytes=5) == 12345
    with pytest.raises(Malformed, match="6 bytes, more than 5"):
        strict_json.parse(b"123456", "body", max_bytes=5)


def test_a_key_can_not_write_words_of_its_own_into_an_error() -> None:
    error = samples.refusal(parse, '{"a\\n\u202e":1,"a\\n\u202e":1}'.encode())
    assert error.why == 'duplicate key "a\\n\\u202e"'
    error = samples.refusal(parse, b'{"%s":1,"%s":1}' % ((b"k" * 5000,) * 2))
    assert len(error.why) < 100


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not 2**53 <= abs(x) < 1e21)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), inner),
    max_leaves=12,
)


@FUZZ
@given(JSON_VALUES)
def test_what_json_writes_comes_back(value: Any) -> None:
    for ascii_only in (True, False):
        assert parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@FUZZ
@given(samples.hostile([b'{"a":[1,2.5,"\\ud83d\\ude00",{"b":null,"c":true}]}', samples.STATEMENT]))
def test_malformed_or_a_value(raw: bytes) -> None:
    value = samples.malformed_or(parse, raw)
    # What is taken has one meaning: it can be written as text again, and is what a lenient reader would have seen.
    assert value is None or value == json.loads(json.dumps(value, ensure_ascii=False).encode())


@pytest.mark.parametrize("example", CANONICAL["documents"], ids=lambda example: example["name"])
def test_canonical_documents_of_rfc_8785(example: dict[str, str]) -> None:
    canonical = example["canonical"].encode()
    assert strict_json.canonical(parse(example["json"].encode())) == canonical
    assert strict_json.canonical(parse(canonical)) == canonical


@pytest.mark.parametrize(("bits", "text"), CANONICAL["numbers"])
def test_canonical_numbers_of_rfc_8785(bits: str, text: str) -> None:
    number: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    assert strict_json.canonical(number) == text.encode()


@pytest.mark.parametrize(
    "value",
    [struct.unpack(">d", bytes.fromhex(bits))[0] for bits in CANONICAL["without"]]
    + [2**53, -(2**53), "\ud800", {"\ud800": 1}, {1: 2}, b"bytes", {"a": {1, 2}}],
    ids=repr,
)
def test_no_canonical_form(value: Any) -> None:
    with pytest.raises(Malformed, match="no canonical form"):
        strict_json.canonical(value)


def test_no_canonical_form_of_what_holds_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Malformed, match="no canonical form"):
        strict_json.canonical(loop)


@FUZZ
@given(JSON_VALUES)
def test_the_canonical_form_does_not_depend_on_the_spelling(value: Any) -> None:
    canonical = strict_json.canonical(value)
    spelt = json.dumps(value, indent=2, sort_keys=True)
    assert strict_json.canonical(parse(spelt.encode())) == canonical


ONE = frozenset(("a",))


@pytest.mark.parametrize(
    ("value", "found"),
    [(None, "null"), (True, "true"), (1, "a number"), (1.5, "a number"), ("x", "a text"), ([], "an array")],
)
def test_fields_of_something_else_than_an_object(value: JsonValue, found: str) -> None:
    with pytest.raises(Malformed) as caught:
        Fields(value, "body", ONE)
    assert (caught.value.where, caught.value.why) == ("body", f"expected an object, found {found}")


def test_fields_name_the_path() -> None:
    outer = Fields({"a": {"b": 1, "c": 2}}, "body", ONE)
    with pytest.raises(Malformed, match=r"^a\.c: unknown field$"):
        outer.inner("a", frozenset("b"))
    with pytest.raises(Malformed, match=r"^a\.d: missing$"):
        outer.inner("a", frozenset("bcd"))
    with pytest.raises(Malformed, match=r"^a\.b: expected a text, found a number$"):
        outer.inner("a", frozenset("bc")).text("b")


def test_an_optional_field_does_not_stand_in_for_a_required_one() -> None:
    with pytest.raises(Malformed, match=r"^a: missing$"):
        Fields({"b": 1}, "body", ONE, frozenset("b"))
