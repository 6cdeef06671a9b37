"""Brokered tools and their results in the SDK's types, and what a client may say of a call in its `_meta`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mcp.types import CallToolResult, Tool
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.methods import serialize_server_result, validate_server_result

from broker.errors import Malformed
from broker.wire import answers, names
from broker.wire.bodies import MAX_CALL_WAIT_S

CALL_ID: Final = "lever.dev/call_id"
WAIT_S: Final = "lever.dev/wait_s"
MAX_DEPTH: Final = 128
"""Readers give up at some depth, the SDK's own at 200, and then the whole message is lost on them."""
_CACHED = {"ttlMs": 0, "cacheScope": "private"}


def said_of(meta: Mapping[str, Any] | None) -> tuple[str, int]:
    """The client's own name for the call, empty for none, and how long to wait for the operator. Raises Malformed."""
    told = meta or {}
    call_id = names.attempt(told[CALL_ID], CALL_ID) if CALL_ID in told else ""
    wait_s = told.get(WAIT_S, 0)
    if type(wait_s) is not int or not 0 <= wait_s <= MAX_CALL_WAIT_S:
        raise Malformed(WAIT_S, f"expected a whole number from 0 to {MAX_CALL_WAIT_S}")
    return call_id, wait_s


def tools(definitions: Iterable[Mapping[str, Any]], version: str) -> list[Tool]:
    """Those that this revision has room for: one that it has not would spoil the whole list for the client.

    The older revision knows no output that is not an object: there the tool is told without its output's schema.
    """
    return [tool for definition in definitions for tool in _told(definition, version)]


def _told(definition: Mapping[str, Any], version: str) -> Iterator[Tool]:
    for left_out in ((), ("outputSchema",)):
        try:
            _flat_enough(definition, MAX_DEPTH)
            tool = Tool.model_validate({name: value for name, value in definition.items() if name not in left_out})
            dumped = tool.model_dump(by_alias=True, mode="json", exclude_none=True)
            validate_server_result("tools/list", version, {"resultType": "complete", **_CACHED, "tools": [dumped]})
        except ValueError:
            continue
        yield tool
        return


def result(raw: Mapping[str, Any], version: str) -> CallToolResult:
    """The same as `told`, as the SDK's server takes it."""
    return CallToolResult.model_validate(told(raw, version), by_name=False)


def told(raw: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A result in this revision's shape, as it is.

    One that it has no room for is told as its JSON: nothing of a call that was made is lost.
    """
    try:
        _flat_enough(raw, MAX_DEPTH)
        CallToolResult.model_validate(
            raw, by_name=False
        )  # the newer revision's shapes of a result have one that fits all
        return serialize_server_result("tools/call", version, {**raw, **_unsigned(raw), "resultType": "complete"})
    except ValueError:
        text = {"type": "text", "text": answers.encode(raw).decode()}
        bare = {"content": [text], "isError": raw.get("isError") is True, "resultType": "complete"}
        return serialize_server_result("tools/call", version, bare)


def _unsigned(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Its `_meta` without the word of who answers: that is the gateway's to say."""
    meta = raw.get("_meta")
    return (
        {"_meta": {name: meta[name] for name in meta if name != SERVER_INFO_META_KEY}} if isinstance(meta, dict) else {}
    )


def _flat_enough(value: object, levels: int) -> None:
    """Raises ValueError for what is nested deeper than so many levels; never looks deeper than that itself."""
    if not isinstance(value, list | Mapping):
        return
    if levels == 0:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    for item in value.values() if isinstance(value, Mapping) else value:
        _flat_enough(item, levels - 1)
