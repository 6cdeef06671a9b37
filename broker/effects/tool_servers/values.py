"""How many values a server's message may hold: what the SDK makes of one on the event loop takes time for each of them.

Of a list of wrong items its types make an error for each item and each kind that it might have been: 2 GB of a MiB.
"""

from __future__ import annotations

import gc
from typing import Any, Final

from pydantic_core import from_json

from broker.wire import strict_json

MAX_VALUES: Final = 131072
MAX_TYPED: Final = 10_000
"""Of those that have types of the protocol. So many wrong ones take 0.2 s and 56 MB."""
_FREE: Final = frozenset(("structuredContent", "tools"))
"""What of a result is of no such type: a tool's own values, and the list that broker/wire/catalogue.py reads itself."""


class TooMany(ValueError):
    """A message that is not looked at any further. It holds no word of the server's own."""


def read(raw: bytes) -> Any:
    """One message, and no more than it may hold. Raises ValueError: TooMany, or for no JSON."""
    message = _parsed(raw)
    if at_most(raw) > MAX_TYPED:
        if strict_json.counted(message, MAX_VALUES) > MAX_VALUES:
            raise TooMany(f"it wrote a message with more than {MAX_VALUES} values")
        if strict_json.counted(_typed(message), MAX_TYPED) > MAX_TYPED:
            raise TooMany(f"it wrote a message with more than {MAX_TYPED} values outside of structured content")
    return message


def at_most(raw: bytes) -> int:
    """It holds no more than so many. By its brackets and commas, those within texts too: often that is enough."""
    return sum(map(raw.count, (b"[", b"{", b",")))


def _typed(message: object) -> object:
    """The message without what is free, and with plain texts as one value each: there is nothing wrong in them."""
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(result, dict):
        return message
    typed = {name: value for name, value in result.items() if name not in _FREE}
    if isinstance(content := typed.get("content"), list):
        typed["content"] = [None if _is_plain(item) else item for item in content]
    return {**message, "result": typed}


def _is_plain(item: object) -> bool:
    return (
        isinstance(item, dict)
        and item.keys() == {"type", "text"}
        and item["type"] == "text"
        and isinstance(item["text"], str)
    )


def _parsed(raw: bytes) -> Any:
    """Without the collector of cycles, of which JSON has none: of a hostile line's lists in lists it makes seconds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return from_json(raw)
    finally:
        if was_on:
            gc.enable()
