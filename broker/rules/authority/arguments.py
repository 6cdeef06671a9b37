"""What the frozen arguments of a call name, and whether the argument rules hold for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn, TypeAlias, TypeVar, assert_never

from broker.errors import Malformed
from broker.rules.authority.judgement import Resource
from broker.wire import json_pointer, operands
from broker.wire.json_pointer import Gap, Pointer
from broker.wire.policy_terms import Absent, AtMost, Between, Equals, HostIn, Operand, Test, Within
from broker.wire.strict_json import MAX_INTEGER, JsonObject, JsonValue

T = TypeVar("T")
_NOT_ONE = "expected one value there, or the array that the policy speaks of"


class MissingOperand(Exception):
    """There is nothing, or null, where a rule or the table looks."""


def resources(operand: Operand, arguments: JsonObject, *, may_miss: bool) -> tuple[Resource, ...]:
    """Every target that an operand names, each once.

    Raises Malformed for one that could be another thing, and MissingOperand for none unless it may miss.
    """
    named: dict[Resource, None] = {}
    for value in json_pointer.select(arguments, operand.pointer):
        if value is None or value is Gap.MISSING:
            if not may_miss:
                raise MissingOperand
        elif value is Gap.AMBIGUOUS:
            raise Malformed(operand.kind, _NOT_ONE)
        else:
            named[Resource(operand.pointer, operand.kind, operands.normal(operand.kind, value))] = None
    return tuple(named)


def account(pointer: Pointer, arguments: JsonObject) -> str | None:
    """The name that the arguments give the account; None when they give none, or no text."""
    (value,) = json_pointer.select(arguments, pointer)
    return value if isinstance(value, str) else None


Passes: TypeAlias = Callable[["JsonValue | Gap"], bool]
Check: TypeAlias = Callable[[JsonObject], bool]
"""Does a rule hold for the arguments? Raises MissingOperand, and Malformed for a value of another kind."""


def check_of(pointer: Pointer, test: Test) -> Check:
    """A rule made ready, once for all calls: it holds when its test does for every value that the pointer leads to."""
    passes = _passes(test)
    return lambda arguments: all(map(passes, json_pointer.select(arguments, pointer)))


def bounds(low: int | None, high: int | None) -> tuple[int, int]:
    """The same with numbers for both."""
    return -MAX_INTEGER if low is None else low, MAX_INTEGER if high is None else high


def _passes(test: Test) -> Passes:
    match test:
        case Equals(values):
            return _equals(values)
        case Within(prefixes):
            starts = operands.starts(prefixes)
            return lambda value: operands.folder(_of(str, value, "a path")).startswith(starts)
        case Between(low, high):
            lowest, highest = bounds(low, high)
            return lambda value: lowest <= (value if type(value) is int else _unfit(value, "a whole number")) <= highest
        case AtMost(length):
            return lambda value: (
                len(value if isinstance(value, str | list) else _unfit(value, "a text or an array")) <= length
            )
        case HostIn(hosts):
            return lambda value: operands.host(_of(str, value, "a host")) in hosts
        case Absent():
            return _is_absent
        case _:
            assert_never(test)


def _equals(values: tuple[bool | int | str, ...]) -> Passes:
    # 1, true and "1" are three values; Python's == takes the first two for one.
    allowed = frozenset((type(value), value) for value in values)

    def check(value: JsonValue | Gap) -> bool:
        if isinstance(value, str | int):
            return (type(value), value) in allowed
        if value is None or isinstance(value, Gap):
            _unfit(value, "one value")
        return False

    return check


def _is_absent(value: JsonValue | Gap) -> bool:
    if value is Gap.AMBIGUOUS:
        _unfit(value, "nothing")
    return value is Gap.MISSING


def _of(kind: type[T], value: JsonValue | Gap, expected: str) -> T:
    """The value, when it is of the kind that the test speaks of; true is no whole number."""
    return value if type(value) is kind else _unfit(value, expected)


def _unfit(value: JsonValue | Gap, expected: str) -> NoReturn:
    if value is None or value is Gap.MISSING:
        raise MissingOperand
    raise Malformed("operand", _NOT_ONE if value is Gap.AMBIGUOUS else f"expected {expected}")


def words(test: Test) -> str:
    """A test as it stands in a policy, for people."""
    match test:
        case Equals(values):
            return "in " + ", ".join(map(json.dumps, values))
        case Within(prefixes):
            return "at or under " + ", ".join(map(json.dumps, prefixes))
        case Between(low, high):
            return f"from {'any' if low is None else low} to {'any' if high is None else high}"
        case AtMost(length):
            return f"of length {length} or less"
        case HostIn(hosts):
            return "at the host " + ", ".join(hosts)
        case Absent():
            return "absent"
        case _:
            assert_never(test)
