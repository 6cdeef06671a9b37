"""The parts of a policy that speak of arguments: accounts, resources, argument rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from broker.errors import Malformed
from broker.wire import json_pointer, operands
from broker.wire.json_pointer import EVERY, Pointer
from broker.wire.notes import Notes, Path, found
from broker.wire.operands import Kind
from broker.wire.policy_terms import Absent, AtMost, Between, Equals, HostIn, Operand, Otherwise, Rule, Test, Within
from broker.wire.strict_json import MAX_INTEGER, JsonObject, JsonValue

MAX_LENGTH: Final = 65536
_TESTS = ("equals", "in", "prefix", "min", "max", "max_length", "host_in", "absent")
_Members: TypeAlias = JsonObject


def account(notes: Notes, value: JsonValue, path: Path) -> str | Pointer | None:
    """The account's name, or the pointer to it in the arguments."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        notes.wrong(path, "an account's name, or a mapping with the pointer to it", value)
        return None
    pointer = _pointer(notes, notes.fields(value, path, ("pointer",), ()), path)
    if pointer and EVERY in pointer:
        notes.note((*path, "pointer"), "expected a pointer to one account, found one with * in it")
    return pointer


def resources(notes: Notes, value: JsonValue, path: Path) -> tuple[Operand, ...]:
    """What a call touches: where the arguments name it."""
    read: list[Operand] = []
    for number, item in enumerate(notes.items(value, path)):
        here = (*path, number)
        members = notes.fields(item, here, ("pointer", "kind"), ())
        pointer = _pointer(notes, members, here)
        if "kind" in members and members["kind"] not in tuple(Kind):
            notes.wrong((*here, "kind"), "path, host or id", members["kind"])
        elif "kind" in members and pointer:
            if any(operand.pointer == pointer for operand in read):
                notes.note(here, f"expected each pointer once; found {found(members['pointer'])} again")
            read.append(Operand(pointer, Kind(str(members["kind"]))))
    return tuple(read)


def rules(notes: Notes, value: JsonValue, path: Path) -> tuple[Rule, ...]:
    """Argument rules, in the order in which they are tried."""
    read = (_rule(notes, item, (*path, number)) for number, item in enumerate(notes.items(value, path)))
    return tuple(rule for rule in read if rule)


def _rule(notes: Notes, value: JsonValue, path: Path) -> Rule | None:
    members = notes.fields(value, path, ("pointer",), (*_TESTS, "otherwise"))
    pointer = _pointer(notes, members, path)
    otherwise = members.get("otherwise", Otherwise.DENY)
    if otherwise not in tuple(Otherwise):
        notes.wrong((*path, "otherwise"), "approval or deny", otherwise)
        otherwise = Otherwise.DENY
    written = [name for name in _TESTS if name in members]
    if not written or (len(written) > 1 and written != ["min", "max"]):
        said = f"found {', '.join(written)}" if written else "found none"
        notes.note(path, f"expected one test of {', '.join(_TESTS)} (min and max may stand together); {said}")
        return None
    test = _TEST_OF[written[0]](notes, members, path)
    return Rule(pointer, test, Otherwise(str(otherwise))) if pointer and test else None


def _pointer(notes: Notes, members: _Members, path: Path) -> Pointer | None:
    if "pointer" not in members:
        return None
    return notes.taken(json_pointer.parse, members["pointer"], (*path, "pointer"))


def _equals(notes: Notes, members: _Members, path: Path) -> Test | None:
    value = members["equals"]
    return Equals((value,)) if _is_scalar(notes, value, (*path, "equals")) else None  # type: ignore[arg-type]


def _in(notes: Notes, members: _Members, path: Path) -> Test | None:
    path = (*path, "in")
    values = notes.items(members["in"], path, least=1)
    judged = [_is_scalar(notes, value, (*path, number)) for number, value in enumerate(values)]
    return Equals(tuple(values)) if all(judged) else None  # type: ignore[arg-type]


def _is_scalar(notes: Notes, value: JsonValue, path: Path) -> bool:
    if isinstance(value, bool | str) or (type(value) is int and abs(value) <= MAX_INTEGER):
        return True
    notes.wrong(path, "a text, a whole number, true or false", value)
    return False


def _within(notes: Notes, members: _Members, path: Path) -> Test | None:
    prefixes = _texts(notes, members["prefix"], (*path, "prefix"), operands.path)
    return Within(prefixes) if prefixes else None


def _host_in(notes: Notes, members: _Members, path: Path) -> Test | None:
    hosts = _texts(notes, members["host_in"], (*path, "host_in"), _bare_host)
    return HostIn(hosts) if hosts else None


def _bare_host(value: JsonValue) -> str:
    host = operands.host(value)
    if host != value:
        raise Malformed("host", f"expected a bare host, in lower case and without a port, like {host}")
    return host


def _texts(notes: Notes, value: JsonValue, path: Path, parse: Callable[[JsonValue], str]) -> tuple[str, ...]:
    """One text or a list of them, each in its normal form."""
    if isinstance(value, str):
        one = notes.taken(parse, value, path)
        return (one,) if one is not None else ()
    read = [notes.taken(parse, item, (*path, number)) for number, item in enumerate(notes.items(value, path, least=1))]
    return tuple(text for text in read if text is not None)


def _between(notes: Notes, members: _Members, path: Path) -> Test | None:
    low, high = (
        notes.number(members[name], (*path, name), -MAX_INTEGER, MAX_INTEGER) if name in members else None
        for name in ("min", "max")
    )
    if low is not None and high is not None and low > high:
        notes.note(path, f"expected min to be at most max; found {low} and {high}")
    return Between(low, high)


def _at_most(notes: Notes, members: _Members, path: Path) -> Test | None:
    return AtMost(notes.number(members["max_length"], (*path, "max_length"), 0, MAX_LENGTH))


def _absent(notes: Notes, members: _Members, path: Path) -> Test | None:
    if members["absent"] is not True:
        notes.wrong((*path, "absent"), "true", members["absent"])
    return Absent()


_TEST_OF: dict[str, Callable[[Notes, _Members, Path], Test | None]] = {
    "equals": _equals,
    "in": _in,
    "prefix": _within,
    "min": _between,
    "max": _between,
    "max_length": _at_most,
    "host_in": _host_in,
    "absent": _absent,
}
