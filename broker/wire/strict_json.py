"""Strict JSON: one meaning for every byte string, or Malformed. docs/formats/statement.md lists the rules."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TypeAlias

import rfc8785

from broker.errors import Malformed

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

MAX_BYTES = 65536
MAX_DEPTH = 64
MAX_INTEGER = (1 << 53) - 1
_EXPONENT_FROM = 1e21  # RFC 8785 writes smaller integers out in digits
_LONGEST_INTEGER = len(str(-MAX_INTEGER))
_SHOWN_CHARS = 64
BEYOND = "an integer beyond +-(2^53-1)"


class _NotStrictError(Exception):
    """What a hook of the decoder found wrong; it does not know where the text came from."""


def shown(name: str) -> str:
    """A foreign name for an error text: ASCII and short, so that it can't disguise itself as the text's own words."""
    if name.isascii() and name.isidentifier() and len(name) <= _SHOWN_CHARS:
        return name
    return json.dumps(name[:_SHOWN_CHARS]) + ("..." if len(name) > _SHOWN_CHARS else "")


def _object(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    members = dict(pairs)
    # Keys that differ only in case are one key to some readers (Go's encoding/json), so they count as duplicates.
    if len(pairs) > 1 and len(set(map(str.casefold, members))) < len(pairs):
        _refuse_pairs(pairs)
    return members


def _refuse_pairs(pairs: list[tuple[str, JsonValue]]) -> None:
    seen: dict[str, str] = {}
    for name, _ in pairs:
        folded = name.casefold()
        if seen.get(folded) == name:
            raise _NotStrictError(f"duplicate key {shown(name)}")
        if folded in seen:
            raise _NotStrictError(f"keys {shown(seen[folded])} and {shown(name)} differ only in case")
        seen[folded] = name


def _integer(digits: str) -> int:
    # The length first: int() is slow, and then refuses, for thousands of digits.
    number = int(digits) if len(digits) <= _LONGEST_INTEGER else MAX_INTEGER + 1
    if not -MAX_INTEGER <= number <= MAX_INTEGER:
        raise _NotStrictError(BEYOND)
    return number


def _any_integer(digits: str) -> int:
    """One of those that are refused stands for all: whoever reads so refuses it later, and says where it is."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else MAX_INTEGER + 1


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotStrictError("a number too large for a double")
    if number.is_integer() and MAX_INTEGER < abs(number) < _EXPONENT_FROM:
        raise _NotStrictError("a number whose canonical form is an integer beyond +-(2^53-1)")
    return number


def _constant(word: str) -> float:
    raise _NotStrictError(f"{word} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)

_WIDE = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_any_integer, parse_float=_float, parse_constant=_constant
)


def parse(raw: bytes, where: str, *, max_bytes: int = MAX_BYTES, wide: bool = False) -> JsonValue:
    """The one JSON value that these bytes are. Raises Malformed, and nothing else, whatever the bytes.

    where: what to call the bytes in the error; wide: integers beyond 2^53-1 too, for a caller that refuses them.
    """
    if len(raw) > max_bytes:
        raise Malformed(where, f"{len(raw)} bytes, more than {max_bytes}")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise Malformed(where, "starts with a byte order mark")
    try:
        value: JsonValue = (_WIDE if wide else _DECODER).decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Malformed(where, f"not UTF-8 at byte {error.start}") from error
    except _NotStrictError as error:
        raise Malformed(where, str(error)) from error
    except json.JSONDecodeError as error:
        raise Malformed(where, f"not one JSON value: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise Malformed(where, f"nested deeper than {MAX_DEPTH}") from error
    # Both walks are rare: most texts have few brackets and no \u escape at all.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise Malformed(where, f"nested deeper than {MAX_DEPTH}")
    if b"\\u" in raw and not _is_unicode(value):
        raise Malformed(where, "a lone surrogate")
    return value


def _deeper(value: JsonValue, levels: int) -> bool:
    """Whether arrays and objects are nested more than `levels` deep; never looks deeper than that itself."""
    if not isinstance(value, list | dict):
        return False
    if levels == 0:
        return True
    inner = value.values() if isinstance(value, dict) else value
    return any(_deeper(item, levels - 1) for item in inner)


def _is_unicode(value: JsonValue) -> bool:
    """Whether every text in a value of bounded depth can be written as UTF-8."""
    if isinstance(value, str):
        return not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, dict):
        return all(_is_unicode(name) and _is_unicode(item) for name, item in value.items())
    return not isinstance(value, list) or all(map(_is_unicode, value))


def beyond(value: JsonValue, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where there are integers beyond 2^53-1, as the names and numbers on the way there."""
    if type(value) is int and not -MAX_INTEGER <= value <= MAX_INTEGER:
        yield at
    elif len(at) > MAX_DEPTH:  # what is too deep has no canonical form either
        return
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from beyond(inner, (*at, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from beyond(inner, (*at, str(number)))


def counted(value: object, most: int) -> int:
    """The items and members in it, however deep; no longer than until there are more than `most`."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        found = waiting.pop()
        if isinstance(found, dict | list):
            count += len(found)
            if count <= most:
                waiting.extend(found.values() if isinstance(found, dict) else found)
    return count


def canonical(value: JsonValue) -> bytes:
    """The RFC 8785 form of a value. Raises Malformed where there is none (NaN, 2^53, a lone surrogate)."""
    try:
        return rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:  # CanonicalizationError and UnicodeError are both ValueErrors
        raise Malformed("value", f"has no canonical form: {error}") from error


def kind_of(value: JsonValue) -> str:
    """What a value is, in JSON's words, for error texts."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "an array" if isinstance(value, list) else "an object"


class Fields:
    """The members of one object, taken out by name and type; every refusal names the field's path.

    Made only when the object has each required field, and no field that is neither required nor optional.
    where: what to call the object itself; prefix: what stands before its fields' names in a path.
    """

    __slots__ = ("_members", "_prefix")

    def __init__(
        self,
        value: JsonValue,
        where: str,
        required: frozenset[str],
        optional: frozenset[str] = frozenset(),
        *,
        prefix: str = "",
    ) -> None:
        self._prefix = prefix
        self._members = as_object(value, where)
        for name in self._members:
            if name not in required and name not in optional:
                raise Malformed(self.path(shown(name)), "unknown field")
        if len(self._members) < len(required) or optional:
            for name in sorted(required):
                if name not in self._members:
                    raise Malformed(self.path(name), "missing")

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def path(self, name: str) -> str:
        """The field's name as errors spell it: `target_agent.cn`."""
        return self._prefix + name

    def value(self, name: str) -> JsonValue:
        """A required field, of whatever type."""
        return self._members[name]

    def text(self, name: str) -> str:
        """A field that must be a text. Raises Malformed."""
        found = self._members[name]
        if not isinstance(found, str):
            raise Malformed(self.path(name), f"expected a text, found {kind_of(found)}")
        return found

    def members(self, name: str) -> JsonObject:
        """A field that must be an object of free content; {} when it is optional and absent. Raises Malformed."""
        return as_object(self._members.get(name, {}), self.path(name))

    def inner(self, name: str, required: frozenset[str]) -> Fields:
        """A field that must be an object with exactly these fields. Raises Malformed."""
        path = self.path(name)
        return Fields(self._members[name], path, required, prefix=path + ".")

    def exactly(self, name: str, expected: str | int) -> None:
        """A field that has one allowed value; 1.0 and true are not 1. Raises Malformed."""
        found = self._members[name]
        if type(found) is not type(expected) or found != expected:
            raise Malformed(self.path(name), f"expected {json.dumps(expected)}")


def as_object(value: JsonValue, where: str) -> JsonObject:
    """A value that must be an object. Raises Malformed."""
    if not isinstance(value, dict):
        raise Malformed(where, f"expected an object, found {kind_of(value)}")
    return value
