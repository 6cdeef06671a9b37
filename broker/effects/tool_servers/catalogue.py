"""What tools a server says it has: every page, within bounds. broker/wire/catalogue.py says what each is worth."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from broker.errors import Malformed
from broker.wire.strict_json import JsonObject

MAX_TOOLS = 1000
MAX_PAGES = 100
MAX_BYTES = 4 * 1024 * 1024


async def definitions(page: Callable[[str | None], Awaitable[JsonObject]]) -> tuple[object, ...]:
    """The definitions, in the server's order. page: one page by its cursor. Raises Malformed, and what page raises."""
    tools: list[object] = []
    cursors: set[str] = set()
    cursor: str | None = None
    total = 0
    for _ in range(MAX_PAGES):
        listed = await page(cursor)
        found = listed.get("tools")
        if not isinstance(found, list):
            raise Malformed("tools", "expected an array")
        tools += found
        total += sum(map(_size, found))
        if len(tools) > MAX_TOOLS or total > MAX_BYTES:
            raise Malformed("tools", f"more than {MAX_TOOLS} tools, or more than {MAX_BYTES} bytes")
        cursor = _next(listed.get("nextCursor"), cursors)
        if cursor is None:
            return tuple(tools)
    raise Malformed("tools", f"more than {MAX_PAGES} pages")


def _size(definition: object) -> int:
    """Its length as JSON. What is none is unfit anyhow, and within what a server may write at all."""
    try:
        return len(json.dumps(definition))
    except (ValueError, RecursionError):
        return 0


def _next(cursor: object, seen: set[str]) -> str | None:
    if cursor is None or cursor == "":
        return None
    if not isinstance(cursor, str) or cursor in seen:
        raise Malformed("tools", "a list that never ends")
    seen.add(cursor)
    return cursor
