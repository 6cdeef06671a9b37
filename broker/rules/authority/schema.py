"""A pinned tool's input schema, compiled once, with errors that name the place and never the value."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs

from broker.errors import Malformed
from broker.wire import json_pointer
from broker.wire.catalogue import PinnedTool
from broker.wire.strict_json import JsonObject, as_object, shown

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


class Schema:
    """What a tool takes. Raises Malformed when the schema itself can't be used."""

    def __init__(self, schema: JsonObject) -> None:
        dialect = str(schema.get("$schema", _DEFAULT)).removesuffix("#")
        if dialect not in _DIALECTS:
            raise Malformed("inputSchema.$schema", f"expected 2020-12, 2019-09 or draft-07, found {shown(dialect)}")
        try:
            self._validator: Any = _DIALECTS[dialect](
                _closed(schema, dialect),
                validate_formats=False,
                # Nothing is fetched, from no network and no disk; and a pattern can't take for ever.
                offline=True,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:  # ValidationError is a ValueError
            raise Malformed("inputSchema", "is no JSON Schema that stands by itself") from error

    def check(self, arguments: JsonObject) -> None:
        """Raises Malformed for arguments that do not fit; `where` is a JSON Pointer to what does not."""
        if self._validator.is_valid(arguments):
            return
        error = next(iter(self._validator.iter_errors(arguments)))
        keyword = str(error.schema_path[-1]) if error.schema_path else "the schema"
        unexpected = getattr(error.kind, "unexpected", None)
        named = f": {shown(str(unexpected[0]))} is not an argument of this tool" if unexpected else ""
        where = json_pointer.show(tuple(error.instance_path)) or "/"
        raise Malformed(where, f"does not fit `{shown(keyword)}` of the tool's schema{named}")


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
