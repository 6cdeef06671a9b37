"""Frozen arguments: one form for all spellings of a value, never one for two values."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.frozen import freeze, thaw
from tests.wire.samples import FUZZ

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**54), 2**54),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["\ud800", "\U0001f600", "\ue000", "\x7f", "\u2028", 1.0, -0.0, 1e21, 1e300, 2**53 - 1]),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "A", "b", "\U0001f600", "\ue000", "ß"]), inner, max_size=4)
    ),
)


@pytest.mark.promise("P36")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b" : 2, "a" : 1 }'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":100}', '{"a":1e2}'),
        ('{"a":0}', '{"a":-0.0}'),
        ('{"a":"/"}', '{"\\u0061":"\\/"}'),
    ],
)
def test_order_and_spelling_make_no_difference(one: str, other: str) -> None:
    assert freeze(json.loads(one)) == freeze(json.loads(other))


@pytest.mark.parametrize("values", [[1, "1", True, None, 1.5, [1], {"a": 1}]])
def test_types_stay_different(values: list[Any]) -> None:
    assert len({freeze({"a": value}).digest for value in values}) == len(values)


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": 2**53},
        {"a": -(2**53)},
        {"a": 2.0**53},
        {"a": 1e20},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": "\ud800"},
        {"a": 1, "A": 2},
        {"x": {"k": 1, "K": 1}},
        [],
        "a",
        None,
        1,
        {1: 2},
        {"a": b"x"},
        {"a": "x" * 65536},
    ],
)
def test_what_has_no_one_form_is_refused(arguments: Any) -> None:
    with pytest.raises(Malformed):
        freeze(arguments)


def test_too_deep_is_refused() -> None:
    deep: Any = {}
    for _ in range(70):
        deep = {"a": deep}
    with pytest.raises(Malformed):
        freeze(deep)


@FUZZ
@given(st.dictionaries(st.sampled_from(["a", "A", "b", "\U0001f600", "\ue000"]), VALUES, max_size=4))
def test_frozen_bytes_are_rfc_8785_and_say_what_is_decided_on(arguments: dict[str, Any]) -> None:
    try:
        frozen = freeze(arguments)
    except Malformed:
        return
    assert frozen.raw == rfc8785.dumps(arguments)
    assert strict_json.parse(frozen.raw, "arguments") == frozen.value
    assert thaw(frozen.raw) == frozen
    # 1 == 1.0 and 1 == True for Python: the types as well.
    assert json.dumps(thaw(frozen.raw).value, sort_keys=True) == json.dumps(frozen.value, sort_keys=True)
    assert rfc8785.dumps(frozen.value) == frozen.raw


@pytest.mark.parametrize("raw", [b'{"b":1,"a":2}', b'{"a": 1}', b'{"a":1.0}', b'{"a":1,"a":1}', b"[]", b""])
def test_only_frozen_bytes_thaw(raw: bytes) -> None:
    with pytest.raises(Malformed):
        thaw(raw)
