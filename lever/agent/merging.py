"""Put a value into the text of somebody's configuration, and leave every other byte of it alone.

A JSON text gets the value spliced in behind its last neighbour, a TOML text gets lines. So nothing is printed anew, and
order, indentation and comments stay. What came out is parsed and compared with what was to come out.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from lever.agent.harness import File, Want

_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_INDENT = re.compile(r"\s*\{\r?\n([ \t]+)")
_JSON_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_BEYOND_JSON = re.compile(r"//|/\*|,\s*[}\]]")


class Unreadable(Exception):
    """The text can't be added to. sound: it may be right all the same, as its harness reads it."""

    def __init__(self, why: str, *, sound: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.sound = sound


class Taken(Exception):
    """Something else stands where a value is to go."""

    def __init__(self, keys: Sequence[str], found: Any, wanted: Any) -> None:
        super().__init__(".".join(keys))
        self.keys = tuple(keys)
        self.found = found
        self.wanted = wanted


@dataclass(frozen=True, slots=True)
class Format:
    """How to read a text, and how to put a value into it. empty: the text that holds nothing."""

    empty: str
    parse: Callable[[str], dict[str, Any]]
    put: Callable[[str, tuple[str, ...], Any], str]


def format_of(file: File) -> Format:
    """The format that the file's name says."""
    return TOML if file.path.suffix == ".toml" else JSON


def merged(text: str, file: File) -> str:
    """The text with all that the file is to hold; the same text if it holds that already. Raises Unreadable, Taken."""
    form = format_of(file)
    if not text.strip():
        text = form.empty
    data = form.parse(text)
    for want in file.wants_beside(data):
        if (value := _missing(data, want)) is None:
            continue
        text = form.put(text, want.keys, value)
        data = _with(data, want.keys, value)
        if not _says(form, text, data):
            why = f"expected a place for {'.'.join(want.keys)} that leaves the rest as it is, found none"
            raise Unreadable(why, sound=True)
    return text


def snippet(file: File) -> str:
    """The file as it would be if it held nothing else."""
    return merged("", file)


def _says(form: Format, text: str, data: dict[str, Any]) -> bool:
    try:
        return form.parse(text) == data
    except Unreadable:
        return False


def _missing(data: dict[str, Any], want: Want) -> Any:
    """What is still to be put in, or None. An entry that holds more than what is wanted (an `env`, say) will do."""
    here: Any = data
    for depth, key in enumerate(want.keys):
        if not isinstance(here, dict):
            raise Taken(want.keys[:depth], here, {key: want.value})
        if key not in here:
            return want.value
        here = here[key]
    if isinstance(want.value, list) and isinstance(here, list):
        return [one for one in want.value if one not in here] or None
    if here == want.value or (isinstance(here, dict) and isinstance(want.value, dict) and here | want.value == here):
        return None
    raise Taken(want.keys, here, want.value)


def _with(data: dict[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    here = data.get(keys[0])
    if len(keys) > 1:
        return data | {keys[0]: _with(here or {}, keys[1:], value)}
    return data | {keys[0]: [*here, *value] if isinstance(here, list) else value}


def _parse_json(text: str) -> dict[str, Any]:
    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(made := dict(pairs)) < len(pairs):
            raise ValueError("the same key twice in one object")
        return made

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant}, which JSON does not have")

    try:
        data = json.loads(text, object_pairs_hook=distinct, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        if _BEYOND_JSON.search(_JSON_STRING.sub('""', text)):
            why = "expected JSON without comments or trailing commas, found some"
            raise Unreadable(why, sound=True) from error
        raise Unreadable(f"expected JSON, found: {error}") from error
    if not isinstance(data, dict):
        raise Unreadable(f"expected a JSON object, found {json.dumps(data)[:40]}")
    return data


class _Element(NamedTuple):
    """A value in a JSON text, with its key if it has one: text[start:end]. value: where the value itself starts."""

    key: str | None
    value: int
    end: int


def _elements(text: str, at: int) -> tuple[list[_Element], int]:
    """The elements of the object or array that begins at `at` in this valid text, and where its bracket closes."""
    decode = json.JSONDecoder().raw_decode
    keyed, found = text[at] == "{", []
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        key = None
        if keyed:
            key, at = decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = decode(text, at)
        found.append(_Element(key, at, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found, at


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space
    return space.end()


def _put_json(text: str, keys: tuple[str, ...], value: Any) -> str:
    """The value under the keys, or its elements into the array that is there."""
    at = _skip(text, 0)
    for depth, key in enumerate(keys):
        found = {element.key: element for element in _elements(text, at)[0]}
        if key not in found:
            for inner in reversed(keys[depth + 1 :]):
                value = {inner: value}
            return _insert(text, at, depth + 1, [(key, value)])
        at = found[key].value
    return _insert(text, at, len(keys) + 1, [(None, one) for one in value])


def _insert(text: str, at: int, depth: int, new: list[tuple[str | None, Any]]) -> str:
    """The new elements behind the last one of the object or array at `at`, indented as the text is."""
    found, close = _elements(text, at)
    first = _FIRST_INDENT.match(text)
    unit = first[1] if first else "  "
    inline = bool(found) and "\n" not in text[at:close]
    newline = "\r\n" if "\r\n" in text else "\n"
    before, after = ("", " ") if inline else (newline + unit * depth, newline + unit * depth)
    spelled = []
    for key, value in new:
        shown = json.dumps(value, indent=None if inline else unit).replace("\n", newline + unit * depth)
        spelled.append(shown if key is None else f"{json.dumps(key)}: {shown}")
    if found:
        return text[: found[-1].end] + "".join(f",{after}{one}" for one in spelled) + text[found[-1].end :]
    return text[: at + 1] + before + f",{before}".join(spelled) + newline + unit * (depth - 1) + text[close:]


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"expected TOML, found: {error}") from error


def _put_toml(text: str, keys: tuple[str, ...], value: Any) -> str:
    """A table of its own at the end; or a line right under the header of the table that is there."""
    newline = "\r\n" if "\r\n" in text else "\n"
    table, values = (keys, value) if isinstance(value, dict) else (keys[:-1], {keys[-1]: value})
    if text and not text.endswith("\n"):
        text += newline
    lines = "".join(f"{key} = {_spell_toml(one)}{newline}" for key, one in values.items())
    name = r"[ \t]*\.[ \t]*".join(map(re.escape, table))
    if header := re.search(rf"^[ \t]*\[[ \t]*{name}[ \t]*\][ \t]*(#[^\n]*)?\r?\n", text, re.MULTILINE):
        return text[: header.end()] + lines + text[header.end() :]
    return f"{text}{newline if text else ''}[{'.'.join(table)}]{newline}{lines}"


def _spell_toml(value: Any) -> str:
    """JSON's spelling of text, truth and lists of text is TOML's too, but for DEL and the escapes of rare letters."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


JSON = Format("{}\n", _parse_json, _put_json)
TOML = Format("", _parse_toml, _put_toml)
