"""The small words, letter by letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import Malformed
from broker.wire import names

LOOKALIKES = [
    "",
    " a",
    "a ",
    "a\n",
    "\na",
    "a b",
    "a\x00",
    "\u0430",
    "\u00e4",
    "a\u200b",
    "\u202ea",
    "a\u0301",
    "\uff41",
]


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (names.cn, ["a", "0", "worker-a", "a--b", "a" * 63, "selftest"]),
        (names.instance, ["demo", "a" * 63]),
        (names.directive_id, ["a", "-", ".", "..", "A_b.c-9", "a" * 64]),
        (names.attempt, ["a", "A_b.c-9", "a" * 64]),
        (lambda raw: names.tool_word(raw, "tool"), ["a", "mcp:files/read_file", "a.b-c", "a" * 128]),
        (names.generation, [1, 2, 2**53 - 1]),
    ],
    ids=["cn", "instance", "directive_id", "attempt", "tool", "generation"],
)
def test_takes(check: Callable[[object], object], good: list[object]) -> None:
    assert [check(each) for each in good] == good


@pytest.mark.parametrize(
    ("check", "where", "bad"),
    [
        (names.cn, "cn", ["-a", "a-", "-", "A", "a_b", "a.b", "a/b", "a" * 64, 1, None, ["a"]]),
        (names.instance, "instance", ["-a", "a-", "A", "a_b", "a" * 64, 1]),
        (names.directive_id, "directive_id", ["a/b", "a:b", "a+b", "a" * 65, 1, None, b"a"]),
        (names.attempt, "attempt", ["a/b", "a" * 65, 1, None]),
        (lambda raw: names.tool_word(raw, "tool"), "tool", ["a+b", "a\\b", "a" * 129, 1, None]),
        (names.generation, "generation", [0, -1, 1.0, True, "1", None]),
    ],
    ids=["cn", "instance", "directive_id", "attempt", "tool", "generation"],
)
def test_refuses(check: Callable[[object], object], where: str, bad: list[Any]) -> None:
    for each in [*bad, *LOOKALIKES]:
        with pytest.raises(Malformed) as caught:
            check(each)
        assert caught.value.where == where


def test_the_principal_is_one_word_of_the_instance() -> None:
    assert names.principal(names.instance("demo")) == "operator@demo"
