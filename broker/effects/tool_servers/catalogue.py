"""What tools a server says it has: every page, within bounds. broker/wire/catalogue.py says what each is worth.

How long it takes to read a list is the server's choice: so the bounds are close, and it is weighed and pinned beside
the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable

from broker.effects.tool_servers.values import MAX_VALUES
from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.strict_json import JsonObject

MAX_TOOLS = 1000
MAX_PAGES = 100
MAX_BYTES = 2 * 1024 * 1024
"""200 tools of ten arguments, each with 120 characters of words and told again as output, are 1.3 MB and 46,000 values,
which take 0.3 s of a processor. Bytes alone don't bound that, a list in a list takes two: MAX_VALUES is for all pages.
"""


async def definitions(page: Callable[[str | None], Awaitable[JsonObject]]) -> tuple[object, ...]:
    """The definitions, in the server's order. page: one page by its cursor. Raises Malformed, and what page raises."""
    tools: list[object] = []
    cursors: set[str] = set()
    cursor: str | None = None
    so_far = (0, 0)
    for _ in range(MAX_PAGES):
        listed = await page(cursor)
        found = listed.get("tools")
        if not isinstance(found, list):
            raise Malformed("tools", "expected an array")
        tools += found
        if len(tools) > MAX_TOOLS:
            raise Malformed("tools", f"more than {MAX_TOOLS} tools")
        so_far = await asyncio.to_thread(_weighed, found, so_far)
        cursor = _next(listed.get("nextCursor"), cursors)
        if cursor is None:
            return tuple(tools)
    raise Malformed("tools", f"more than {MAX_PAGES} pages")


def _weighed(definitions: Iterable[object], so_far: tuple[int, int]) -> tuple[int, int]:
    """How many bytes and values it is with these. Raises Malformed for too many."""
    size, count = so_far
    for definition in definitions:
        try:
            text = json.dumps(definition)
        except (ValueError, RecursionError):  # unfit anyhow, and within what a server may write at all
            continue
        size += len(text)
        count += strict_json.counted(definition, MAX_VALUES)
        if size > MAX_BYTES:
            raise Malformed("tools", f"more than {MAX_BYTES} bytes")
        if count > MAX_VALUES:
            raise Malformed("tools", f"more than {MAX_VALUES} values in their definitions")
    return size, count


def _next(cursor: object, seen: set[str]) -> str | None:
    if cursor is None or cursor == "":
        return None
    if not isinstance(cursor, str) or cursor in seen:
        raise Malformed("tools", "a list that never ends")
    seen.add(cursor)
    return cursor
