"""POST /mcp, `tools/call` of a brokered tool: JSON-RPC carried here, in the SDK's types and by its checks.

The SDK's transport makes streams, tasks and a server for each message, which cost more than the call. Whatever is not
the plain case is left to it: then there is one wording of every refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeGuard

from mcp.shared.inbound import InboundModernRoute, classify_inbound_request, find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import DEFAULT_NEGOTIATED_VERSION, SERVER_INFO_META_KEY
from mcp_types.methods import parse_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from broker.doors.headers import Headers
from broker.wire.catalogue import PinnedTool
from broker.wire.strict_json import JsonObject, JsonValue

METHOD: Final = "tools/call"
_MEMBERS: Final = {"jsonrpc", "id", "method", "params"}
_VERSION: Final = b"mcp-protocol-version"
_PARAMETER: Final = b"mcp-param-"


def is_call(message: JsonValue) -> TypeGuard[dict[str, Any]]:
    """Is it one request for a tool's call, with nothing beside what such a request has?"""
    return (
        isinstance(message, dict)
        and message.keys() == _MEMBERS
        and message["jsonrpc"] == "2.0"
        and message["method"] == METHOD
        and type(message["id"]) in (int, str)
        and isinstance(message["params"], dict)
        and isinstance(message["params"].get("name"), str)
    )


def version_of(message: dict[str, Any], headers: Headers) -> str | None:
    """The revision that the call is made in; None where the SDK has to say what is wrong with it."""
    said = headers.get(_VERSION)
    version = DEFAULT_NEGOTIATED_VERSION if said is None else said.decode("latin-1")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        if any(name.startswith(_PARAMETER) for name in headers):
            return None
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        if not isinstance(classify_inbound_request(message, headers=told), InboundModernRoute):
            return None
    try:
        parse_client_request(METHOD, version, message["params"])
    except ValidationError:
        return None
    return version


@lru_cache(maxsize=1024)
def has_headers(tool: PinnedTool) -> bool:
    """Does its schema have arguments repeated in headers, as the newer revision lets a tool ask for?"""
    schema = tool.definition.get("inputSchema")
    return find_invalid_x_mcp_header(schema) is not None or bool(x_mcp_header_map(schema))


def answer(id: int | str, result: Mapping[str, Any], version: str, stamp: JsonObject) -> dict[str, Any]:
    """The message that answers. result: in the revision's shape; stamp: who answers, which the newer revision tells."""
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        meta = result.get("_meta") or {}
        result = {**result, "_meta": {**meta, SERVER_INFO_META_KEY: stamp}}
    return {"jsonrpc": "2.0", "id": id, "result": result}
