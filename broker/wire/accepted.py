"""What the operator accepts of a server, in canonical JSON: `{"server": name, "identity": {...}, "tools": [...]}`."""

from __future__ import annotations

from collections.abc import Iterable

from broker.errors import Malformed
from broker.wire import catalogue, server_identity, strict_json
from broker.wire.catalogue import PinnedTool
from broker.wire.strict_json import Fields, JsonValue

MAX_TOOLS = 256
_FIELDS = frozenset(("server", "identity", "tools"))


def encode(server: str, tools: Iterable[PinnedTool]) -> bytes:
    """The bytes whose digest is signed. The tools are of one listing: the server is the same to all of them."""
    pinned = tuple(tools)
    (identity,) = {tool.identity for tool in pinned}
    definitions: list[JsonValue] = [tool.definition for tool in pinned]
    return strict_json.canonical({"server": server, "identity": identity.value, "tools": definitions})


def parse(raw: bytes) -> tuple[str, tuple[PinnedTool, ...]]:
    """The server and its tools, each checked as at any other time. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "tools", max_bytes=catalogue.MAX_BYTES * 4), "tools", _FIELDS)
    server, listed = catalogue.server_name(fields.value("server")), fields.value("tools")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_TOOLS:
        raise Malformed("tools", f"expected 1 to {MAX_TOOLS} definitions")
    identity = server_identity.read(fields.value("identity"))
    tools = tuple(catalogue.pin(server, definition, identity) for definition in listed)
    if len({tool.name for tool in tools}) != len(tools):
        raise Malformed("tools", "a name is given twice")
    return server, tools
