"""Arguments frozen: the canonical bytes that are hashed, shown to the operator, and executed."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import orjson

from broker.errors import Malformed
from broker.wire import json_pointer, strict_json
from broker.wire.names import Digest
from broker.wire.strict_json import MAX_BYTES, MAX_DEPTH, JsonObject, JsonValue

_FAST = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_SAME = frozenset((str, int, bool, type(None)))


class Frozen(NamedTuple):
    """raw: RFC 8785 bytes; digest: their SHA-256; value: what they say, and nothing but that is ever decided on."""

    raw: bytes
    digest: Digest
    value: JsonObject


def freeze(arguments: JsonValue) -> Frozen:
    """The arguments in their one form. Raises Malformed.

    1.0 becomes 1 here, as upstream will be sent it; so the value to decide on is the one read from the frozen bytes.
    """
    members = strict_json.as_object(arguments, "arguments")
    raw = _plain_bytes(members) if _is_plain(members, MAX_DEPTH) else None
    if raw is not None and len(raw) <= MAX_BYTES:
        return Frozen(raw, Digest(sha256(raw).digest()), members)
    if (beyond := next(strict_json.beyond(members), None)) is not None:
        raise Malformed(json_pointer.show(beyond), strict_json.BEYOND)
    return thaw(strict_json.canonical(members))


def thaw(raw: bytes) -> Frozen:
    """The same from bytes that were frozen before. Raises Malformed for bytes that are not."""
    value = strict_json.as_object(strict_json.parse(raw, "arguments"), "arguments")
    if strict_json.canonical(value) != raw:
        raise Malformed("arguments", "not in their canonical form")
    return Frozen(raw, Digest(sha256(raw).digest()), value)


def _is_plain(value: JsonValue, levels: int) -> bool:
    """Does a fast encoder write this value as RFC 8785 does, and does it come back the same?

    True of nearly every call: no fractions, and ASCII keys of which no two differ in case alone. The rest takes the
    long way, ten times as slow.
    """
    kind = type(value)
    if kind in _SAME:
        return True
    if levels == 0:
        return False
    if kind is dict:
        return _are_plain(value) and _all_plain(value.values(), levels - 1)  # type: ignore[arg-type,union-attr]
    return kind is list and _all_plain(value, levels - 1)  # type: ignore[arg-type]


def _all_plain(values: Iterable[JsonValue], levels: int) -> bool:
    if _SAME.issuperset(map(type, values)):  # most calls: no step of our own for each value
        return True
    return all(type(value) in _SAME or _is_plain(value, levels) for value in values)


def _are_plain(names: JsonObject) -> bool:
    """ASCII alone, and in lower case still as many. That they are texts the encoder looks after."""
    try:
        joined = "".join(names)
    except TypeError:
        return False
    return joined.isascii() and (joined == joined.lower() or len(set(map(str.lower, names))) == len(names))


def _plain_bytes(value: JsonValue) -> bytes | None:
    try:
        return orjson.dumps(value, option=_FAST)
    except orjson.JSONEncodeError:  # an integer beyond 2^53-1, half a surrogate pair: the long way says what is wrong
        return None
