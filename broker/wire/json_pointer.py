"""JSON Pointers into the arguments of a call, with `*` for every element of an array."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from broker.errors import Malformed
from broker.wire.escape import escaped
from broker.wire.strict_json import JsonValue

Pointer: TypeAlias = tuple[str, ...]
"""The names on the way, unescaped; `*` stands for every element of the array there."""
EVERY = "*"
MAX_TOKENS = 16


class Gap(Enum):
    """Where a pointer leads to no value. AMBIGUOUS: the value there is of another shape than the pointer speaks of."""

    MISSING = "missing"
    AMBIGUOUS = "ambiguous"


def parse(raw: object, where: str = "pointer") -> Pointer:
    """A pointer like `/to/*/address`; `~1` is a slash and `~0` a tilde in a name. Raises Malformed."""
    if not isinstance(raw, str) or not raw.startswith("/") or raw.count("/") > MAX_TOKENS:
        raise Malformed(where, f"expected a JSON Pointer like /path or /files/*/path, of at most {MAX_TOKENS} names")
    tokens = raw[1:].split("/")
    if any("~" in token.replace("~0", "").replace("~1", "") for token in tokens):
        raise Malformed(where, "expected ~0 or ~1 after a ~ in a JSON Pointer")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens)


def show(pointer: tuple[str | int, ...]) -> str:
    """The pointer as it is written, on one line of a bounded length: the names in it may be an agent's."""
    return escaped("".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in pointer))


def select(value: JsonValue, pointer: Pointer) -> tuple[JsonValue | Gap, ...]:
    """What the pointer leads to: one value or gap, and at `*` one for each element of the array.

    An empty array at `*` is a gap. Arrays are entered by `*` alone: nothing else in a pointer could tell one target
    from a batch of them. A null at the end is a value here; what it means is the caller's.
    """
    for depth, token in enumerate(pointer):
        if isinstance(value, dict) and token != EVERY:
            if token not in value:
                return (Gap.MISSING,)
            value = value[token]
        elif isinstance(value, list) and token == EVERY:
            rest = pointer[depth + 1 :]
            return tuple(found for item in value for found in select(item, rest)) or (Gap.MISSING,)
        else:
            return (Gap.MISSING if value is None else Gap.AMBIGUOUS,)
    return (value,)
