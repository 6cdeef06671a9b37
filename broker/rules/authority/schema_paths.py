"""How often a schema can have one and the same value looked at, known before any value is: two small definitions that
each name the next one twice are a million looks after twenty of them. And how many patterns it has: 3,000 of them in
130 KB took ten seconds to compile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.strict_json import JsonObject, shown

MOST: Final = 10_000
MOST_PATTERNS: Final = 64
_ONE = ("not", "if", "then", "else", "$ref", "$dynamicRef", "$recursiveRef")
_SEVERAL = ("allOf", "anyOf", "oneOf")
_AGAINST = ("enum", "const", "required", "dependentRequired")
_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check(schema: JsonObject) -> int:
    """How often it can have one value looked at, at most.

    Raises Malformed for a schema where that is more than MOST times, or can't be told, or that has more than
    MOST_PATTERNS.
    """
    if sum(map(_patterns, _nodes(schema))) > MOST_PATTERNS:
        raise Malformed("inputSchema", f"has more than {MOST_PATTERNS} patterns")
    try:
        paths = _Paths(schema)
        most = max(paths.of(node) for node in _nodes(schema))
    except RecursionError:
        raise Malformed("inputSchema", "its definitions lead on and on") from None
    if most > MOST:
        raise Malformed("inputSchema", f"has one value looked at more than {MOST} times")
    return most


class _Paths:
    """root: the schema. Definitions are found by `#`, by a JSON Pointer, or by an anchor that is there once."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._id = str(root.get("$id", ""))
        self._anchors: dict[str, Any] = {}
        self._known: dict[int, int] = {}
        self._under: set[int] = set()
        for node in _nodes(root):
            if node is not root and isinstance(node.get("$id"), str):
                raise Malformed("inputSchema", "has a schema with an `$id` inside")
            # What is no text is none: an object here need not be a schema, but a default, say.
            for name in {word for word in map(node.get, ("$anchor", "$dynamicAnchor")) if isinstance(word, str)}:
                if name in self._anchors:
                    raise Malformed("inputSchema", f"has the anchor {shown(name)} twice")
                self._anchors[name] = node

    def of(self, node: Any) -> int:
        """Looks at one value by this schema: its own, one for each value that it holds it against, and those of all
        that it names for the same value."""
        if not isinstance(node, dict):
            return 1
        if (known := self._known.get(id(node))) is not None:
            return known
        if id(node) in self._under:  # a definition that leads back to itself ends, or the validator would not
            return 1
        self._under.add(id(node))
        own = 1 + sum(strict_json.counted(node[keyword], MOST) for keyword in _AGAINST if keyword in node)
        found = min(own + sum(map(self.of, self._beside(node))), MOST + 1)
        self._under.discard(id(node))
        self._known[id(node)] = found
        return found

    def _beside(self, node: dict[str, Any]) -> Iterator[Any]:
        for keyword in _ONE:
            if keyword in node:
                part = node[keyword]
                yield self._target(part) if keyword in _REFERENCES else part
        for keyword in _SEVERAL:
            yield from node[keyword] if isinstance(node.get(keyword), list) else ()
        for keyword in _NAMED:
            yield from node[keyword].values() if isinstance(node.get(keyword), dict) else ()

    def _target(self, reference: Any) -> Any:
        if isinstance(reference, str):
            place = reference.removeprefix(self._id)
            if place in ("", "#"):
                return self._root
            if place.startswith("#/"):
                return self._pointed(unquote(place[2:]).split("/"), reference)
            if place[1:] in self._anchors and place[0] == "#":
                return self._anchors[place[1:]]
        raise Malformed("inputSchema", f"names a definition that is not there: {shown(str(reference))}")

    def _pointed(self, tokens: list[str], reference: str) -> Any:
        found: Any = self._root
        for token in tokens:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isascii() and name.isdecimal() and int(name[:9]) < len(found):
                found = found[int(name[:9])]
            else:
                raise Malformed("inputSchema", f"names a definition that is not there: {shown(reference)}")
        return found


def _patterns(node: dict[str, Any]) -> int:
    by_name = node.get("patternProperties")
    return isinstance(node.get("pattern"), str) + (len(by_name) if isinstance(by_name, dict) else 0)


def _nodes(schema: JsonObject) -> Iterator[dict[str, Any]]:
    """Every object in it: more than its schemas, and so all of them."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
