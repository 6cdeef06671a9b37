"""A pinned tool's input schema, compiled once, with errors that name the place and never the value."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import jsonschema_rs

from broker.errors import Malformed
from broker.rules.authority import schema_paths
from broker.wire import json_pointer, strict_json
from broker.wire.catalogue import PinnedTool
from broker.wire.strict_json import JsonObject, JsonValue, as_object, shown

_DIALECTS: dict[str, type[jsonschema_rs.Validator]] = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}
_DEFAULT = "https://json-schema.org/draft/2020-12/schema"
_OPEN = ("additionalProperties", "unevaluatedProperties", "patternProperties")
_JOINED = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies")
_BACKTRACKS = 10_000
"""Steps of one pattern; when they are used up the value does not fit, under `not` either."""
_PATTERN_BYTES = 1 << 20
"""One pattern, compiled: `^\\w{1,255}$` takes a few KiB, `^\\S(?:.{0,253}\\S)?$` more than a quarter of this."""
_MOST_LOOKS = 5_000_000
"""At all values of a call together: about a third of a second."""
_NAMING_BYTES = 1 << 20
"""Of schemas that a tool's calls may have compiled to name what does not fit: about a tenth of a second in all."""
_ABOUT_ALL = ("$schema", "$id", "$defs", "definitions")
"""What any part of a schema may need of the whole."""
_FLAW = "does not fit the tool's schema"


class Schema:
    """What a tool takes. Raises Malformed when the schema itself can't be used."""

    def __init__(self, schema: JsonObject) -> None:
        dialect = str(schema.get("$schema", _DEFAULT)).removesuffix("#")
        if dialect not in _DIALECTS:
            raise Malformed("inputSchema.$schema", f"expected 2020-12, 2019-09 or draft-07, found {shown(dialect)}")
        self._looks = schema_paths.check(schema)
        self._dialect = dialect
        self._whole = _closed(schema, dialect)
        self._validator = self._compiled(self._whole)
        self._parts: dict[tuple[str, str], Any] = {}
        self._about = {keyword: self._whole[keyword] for keyword in _ABOUT_ALL if keyword in self._whole}
        self._about_bytes = len(json.dumps(self._about))
        self._naming_bytes = _NAMING_BYTES

    def check(self, arguments: JsonObject, size_bytes: int) -> None:
        """Raises Malformed for arguments that do not fit; `where` is a JSON Pointer to the argument that does not.

        size_bytes: of their canonical form, which no count of values exceeds.

        The library is asked for nothing but yes or no: to gather what is wrong takes it time and memory without end
        where a schema's alternatives lead back to it.
        """
        room = _MOST_LOOKS // self._looks
        if size_bytes > room and strict_json.counted(arguments, room) > room:
            raise Malformed("/", "are too many values for a schema that looks at each so often")
        if not self._validator.is_valid(arguments):
            raise self._flaw(arguments)

    def _flaw(self, arguments: JsonObject) -> Malformed:
        found = self._whole.get("properties")
        named = found if isinstance(found, dict) else {}
        for name, value in arguments.items():
            if name in named and (keyword := self._unmet(name, named[name], value)):
                return Malformed(json_pointer.show((name,)), f"does not fit `{shown(keyword)}` of the tool's schema")
        required = self._whole.get("required")
        for missing in required if isinstance(required, list) else ():
            if missing not in arguments:
                return Malformed("/", f"{_FLAW}: {shown(str(missing))} is missing")
        if not any(keyword in self._whole for keyword in (*_JOINED, "patternProperties")):
            for name in arguments:
                if name not in named:
                    return Malformed("/", f"{_FLAW}: {shown(name)} is not an argument of this tool")
        return Malformed("/", _FLAW)

    def _unmet(self, name: str, schema: JsonValue, value: JsonValue) -> str:
        """The keyword of an argument's own schema that the value does not fit; empty where each by itself is met."""
        for keyword, part in schema.items() if isinstance(schema, dict) else ():
            if (name, keyword) not in self._parts:
                self._parts[name, keyword] = self._part({keyword: part})
            validator = self._parts[name, keyword]
            if validator and not validator.is_valid(value):
                return keyword
        return ""

    def _part(self, schema: JsonObject) -> Any:
        self._naming_bytes -= self._about_bytes + len(json.dumps(schema))
        if self._naming_bytes < 0:
            return None
        try:
            return self._compiled({**self._about, **schema})
        except Malformed:  # it needs more of the whole
            return None

    def _compiled(self, schema: JsonObject) -> Any:
        try:
            return _DIALECTS[self._dialect](
                schema,
                validate_formats=False,
                # Nothing is fetched, from no network and no disk; and a pattern can't take for ever.
                offline=True,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=_PATTERN_BYTES),
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:  # ValidationError is a ValueError
            kept = f"its patterns are ones, each within {_PATTERN_BYTES >> 20} MiB compiled"
            raise Malformed("inputSchema", f"is no JSON Schema that stands by itself, or not all of {kept}") from error


def _closed(schema: JsonObject, dialect: str) -> JsonObject:
    """A schema that names its properties takes no others, unless it says itself what else it takes.

    A server may know a second name for an argument; what the schema does not name no rule could speak of.
    """
    if "properties" not in schema or any(name in schema for name in _OPEN):
        return schema
    if "draft-07" not in dialect:
        return {**schema, "unevaluatedProperties": False}
    return schema if any(name in schema for name in _JOINED) else {**schema, "additionalProperties": False}


@lru_cache(maxsize=4096)
def schema_of(tool: PinnedTool) -> Schema:
    """The compiled schema of a pinned tool. Raises Malformed."""
    return Schema(as_object(tool.definition.get("inputSchema"), "inputSchema"))
