"""Tool definitions as a server gives them, checked, and pinned by the digest of their canonical form."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from broker.errors import Malformed
from broker.wire import names, strict_json
from broker.wire.names import Digest
from broker.wire.server_identity import NOBODY, ServerIdentity
from broker.wire.strict_json import JsonObject, JsonValue, as_object, shown

MAX_BYTES = 262144
MAX_FILE_BYTES = 16 * 1024 * 1024
FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""What of a definition is accepted, shown and pinned; whatever else a server says is left out."""
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_SERVER = re.compile(r"[a-z0-9-]{1,63}")
# Invisible although they are letters, marks or symbols: fillers, joiners, variation selectors, empty Braille.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
_HIDDEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """A tool as the operator accepted it. Two are the same when server, name and digest are.

    definition: its FIELDS, as far as the server gave them; digest: the SHA-256 of server, identity and definition.
    """

    server: str
    name: str
    digest: Digest
    definition: JsonObject = field(compare=False, repr=False)
    identity: ServerIdentity = field(default=NOBODY, compare=False)

    @property
    def qualified(self) -> str:
        """Its name in policies: `server.tool`."""
        return f"{self.server}.{self.name}"

    def hint(self, name: str) -> bool | None:
        """What the server's annotations say of this hint; None when nothing."""
        annotations = self.definition.get("annotations")
        found = annotations.get(name) if isinstance(annotations, dict) else None
        return found if isinstance(found, bool) else None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server says at one moment: who it is, and its tools. unfit: by name, why one can be neither accepted nor
    called; a definition without a name of its own is `#` and its place in the list."""

    identity: ServerIdentity
    tools: Mapping[str, PinnedTool]
    unfit: Mapping[str, str]


def listing(server: str, identity: ServerIdentity, raw: Iterable[object]) -> Listing:
    """All that a server lists. What is wrong with one definition is nothing to the others. Raises nothing."""
    tools: dict[str, PinnedTool] = {}
    unfit: dict[str, str] = {}
    for number, value in enumerate(raw, 1):
        name = _name(value) or f"#{number}"
        if name in tools or name in unfit:
            tools.pop(name, None)
            unfit[name] = "two definitions have this name"
            continue
        try:
            tools[name] = pin(server, _strict(value), identity)
        except Malformed as error:
            unfit[name] = str(error)
    return Listing(identity, tools, unfit)


def _name(value: object) -> str:
    """Whose definition it is, however wrong the rest; empty where that can't be told."""
    try:
        return names.tool_word(value.get("name") if isinstance(value, dict) else None, "name")
    except Malformed:
        return ""


def _strict(value: object) -> JsonValue:
    """As strict JSON reads it. Raises Malformed."""
    try:
        raw = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise Malformed("tool", "it is no JSON") from error
    return strict_json.parse(raw, "tool", max_bytes=MAX_BYTES)


def pin(server: str, raw: JsonValue, identity: ServerIdentity = NOBODY) -> PinnedTool:
    """A definition from `tools/list` of a server that is this one, pinned. Raises Malformed for one that must not be
    accepted."""
    server_name(server)
    said = as_object(raw, "tool")
    definition = {name: said[name] for name in FIELDS if said.get(name) is not None}
    name = names.tool_word(definition.get("name"), "name")
    for text in ("title", "description"):
        if not isinstance(definition.get(text, ""), str):
            raise Malformed(text, "expected a text")
    if as_object(definition.get("inputSchema"), "inputSchema").get("type") != "object":
        raise Malformed("inputSchema.type", 'expected "object"')
    as_object(definition.get("outputSchema", {}), "outputSchema")
    _annotations(as_object(definition.get("annotations", {}), "annotations"))
    seen_whole(identity.value, "identity")
    seen_whole(definition, "")
    raw_pin = strict_json.canonical({"server": server, "identity": identity.value, "tool": definition})
    if len(raw_pin) > MAX_BYTES:
        raise Malformed("tool", f"{len(raw_pin)} bytes, more than {MAX_BYTES}")
    return PinnedTool(server, name, Digest(sha256(raw_pin).digest()), definition, identity)


def read(raw: bytes) -> dict[str, PinnedTool]:
    """A catalogue in a file: `{"server": [definition, ...]}`, by qualified name. Raises Malformed."""
    tools: dict[str, PinnedTool] = {}
    for server, definitions in as_object(
        strict_json.parse(raw, "catalogue", max_bytes=MAX_FILE_BYTES), "catalogue"
    ).items():
        if not isinstance(definitions, list):
            raise Malformed(shown(server), "expected an array of tool definitions")
        for number, definition in enumerate(definitions):
            try:
                tool = pin(server, definition)
            except Malformed as error:
                raise Malformed(f"{shown(server)}[{number}].{error.where}", error.why) from error
            if tools.setdefault(tool.qualified, tool) is not tool:
                raise Malformed(f"{shown(server)}[{number}].name", "expected each tool once")
    return tools


def assumed(qualified: str) -> PinnedTool:
    """A tool of which nothing is known but its name: it takes anything. Raises Malformed for a bare name."""
    server, dot, name = qualified.partition(".")
    if not dot:
        raise Malformed("tool", "expected server.tool")
    return pin(server, {"name": name, "inputSchema": {"type": "object"}})


def server_name(raw: object, where: str = "server") -> str:
    """1 to 63 of `a-z 0-9 -`: the first dot of `server.tool` and the first `__` of `server__tool` end it."""
    if not isinstance(raw, str) or not _SERVER.fullmatch(raw):
        raise Malformed(where, "expected 1 to 63 of a-z 0-9 -")
    return raw


def _annotations(annotations: JsonObject) -> None:
    for hint in _HINTS:
        if not isinstance(annotations.get(hint, False), bool):
            raise Malformed(f"annotations.{hint}", "expected true or false")


def is_hidden(character: str) -> bool:
    """Would a reader not see this character, or see others in another order because of it? Line ends and tabs show."""
    if character in "\n\t":
        return False
    return unicodedata.category(character) in _HIDDEN or _UNSEEN.match(character) is not None


def seen_whole(value: JsonValue, where: str) -> None:
    """Refuse control, bidirectional and zero-width characters in every text and key. Raises Malformed."""
    if isinstance(value, str):
        if not value.isascii() or not value.isprintable():
            for character in value:
                if is_hidden(character):
                    raise Malformed(where or "tool", f"has the character U+{ord(character):04X}, which can't be seen")
    elif isinstance(value, dict):
        for name, item in value.items():
            path = f"{where}.{shown(name)}" if where else shown(name)
            seen_whole(name, path)
            seen_whole(item, path)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            seen_whole(item, f"{where}[{number}]")
