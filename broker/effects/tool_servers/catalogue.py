"""What tools a server says it has: every page, strictly read, within bounds."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.strict_json import JsonObject, as_object, shown

MAX_TOOLS = 1000
MAX_PAGES = 100
MAX_BYTES = 4 * 1024 * 1024


async def definitions(page: Callable[[str | None], Awaitable[JsonObject]]) -> tuple[JsonObject, ...]:
    """The definitions, in the server's order. page: one page by its cursor. Raises Malformed, and what page raises."""
    tools: dict[str, JsonObject] = {}
    cursors: set[str] = set()
    cursor: str | None = None
    total = 0
    for _ in range(MAX_PAGES):
        listed = await page(cursor)
        found = listed.get("tools")
        if not isinstance(found, list):
            raise Malformed("tools", "expected an array")
        for value in found:
            tool, size = _definition(value)
            name = tool["name"]
            assert isinstance(name, str)
            total += size
            if name in tools:
                raise Malformed("tools", f"two have the name {shown(name)}")
            tools[name] = tool
        if len(tools) > MAX_TOOLS or total > MAX_BYTES:
            raise Malformed("tools", f"more than {MAX_TOOLS} tools, or more than {MAX_BYTES} bytes")
        cursor = _next(listed.get("nextCursor"), cursors)
        if cursor is None:
            return tuple(tools.values())
    raise Malformed("tools", f"more than {MAX_PAGES} pages")


def _definition(value: object) -> tuple[JsonObject, int]:
    """Strict JSON, at most 64 KiB, with a name and a schema."""
    try:
        raw = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise Malformed("tools", "a definition is no JSON") from error
    tool = as_object(strict_json.parse(raw, "tools"), "tools")
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise Malformed("tools", "a definition has no name")
    as_object(tool.get("inputSchema"), f"tools.{shown(name)}.inputSchema")
    return tool, len(raw)


def _next(cursor: object, seen: set[str]) -> str | None:
    if cursor is None or cursor == "":
        return None
    if not isinstance(cursor, str) or cursor in seen:
        raise Malformed("tools", "a list that never ends")
    seen.add(cursor)
    return cursor
