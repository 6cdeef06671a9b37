"""What /mcp is made of: the SDK's server with the directive tools and the brokered ones, carried out by the door."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent
from pydantic_core import to_json

from broker.doors import mcp_call
from broker.doors.agent import AgentDoor
from broker.doors.http import Request, Response
from broker.doors.mcp import CALLER, MAX_BODY_BYTES, MESSAGE, REQUEST
from broker.doors.tools import ToolRoutes
from broker.errors import BrokerError, Malformed, Reason, Refused
from broker.wire import directive_tools as tools
from broker.wire import mcp_shapes, names
from broker.wire.caller import Caller
from broker.wire.names import Instant
from broker.wire.strict_json import JsonValue
from broker.wire.tool_results import Result

ATTEMPT = "lever.dev/attempt"
logging.getLogger("mcp.server.streamable_http").setLevel(logging.WARNING)  # a line for every message otherwise
_SAID = {
    Reason.RATE_LIMITED: "too many calls: wait a minute",
    Reason.CLOCK_BEHIND: "the broker's clock is behind its journal: nothing is decided until the operator mends it",
}
_SAYS_AWAY = ("directive_inbox",)
"""Of the directive tools: to the others a broker that fails is a miss, as on their routes."""
Context = ServerRequestContext[Any, Any]


class Mcp:
    """What answers at /mcp: `manager` anything, `called` the plain call of a brokered tool."""

    def __init__(self, door: AgentDoor, brokered: ToolRoutes, version: str) -> None:
        self._brokered = brokered
        self._server = _server(door, brokered, version)
        # Stateless, answers in JSON; Host and Origin are judged by the door already.
        self.manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=MAX_BODY_BYTES
        )

    async def called(self, request: Request, caller: Caller, message: JsonValue) -> Response | None:
        """The answer to the call of a brokered tool; None for whatever the SDK is to answer."""
        if not mcp_call.is_call(message) or message["params"]["name"] in tools.NAMES:
            return None
        params = message["params"]
        tool = self._brokered.gateway.accepted(params["name"])
        version = mcp_call.version_of(message, request.headers)
        if version is None or (tool and mcp_call.has_headers(tool)):
            return None
        result = mcp_shapes.told(await _brokered(self._brokered, caller, params), version)
        return Response(200, to_json(mcp_call.answer(message["id"], result, version, self._server.server_info_stamp)))


def _server(door: AgentDoor, brokered: ToolRoutes, version: str) -> Server[Any]:
    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        assert context.request is not None
        listed = [*tools.TOOLS, *brokered.gateway.tools(context.request.scope[CALLER])]
        return ListToolsResult(tools=mcp_shapes.tools(listed, context.protocol_version))

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        assert context.request is not None
        scope = context.request.scope
        if params.name not in tools.NAMES:
            result = await _brokered(brokered, scope[CALLER], scope[MESSAGE]["params"])
            return mcp_shapes.result(result, context.protocol_version)
        try:
            call = tools.parse(params.name, params.arguments or {})
            raw = await _answer(door, call, scope[REQUEST], scope[CALLER], _attempt(context))
        except BrokerError as error:
            opaque = params.name not in _SAYS_AWAY
            return CallToolResult.model_validate(_failed(error, opaque=opaque), by_name=False)
        answer = json.loads(raw)
        text = json.dumps(answer, ensure_ascii=False, indent=2)
        return CallToolResult(content=[TextContent(text=text)], structured_content=answer)

    return Server(
        "lever",
        version=version,
        title="Operator directives",
        instructions=tools.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _brokered(brokered: ToolRoutes, caller: Caller, params: Mapping[str, Any]) -> Result:
    """A tool behind the gateway. params: as the door has read them, not what the SDK made of them."""
    arguments, meta = params.get("arguments"), params.get("_meta")
    try:
        await brokered.door.limit("call", caller)
        call_id, wait_s = mcp_shapes.said_of(meta if isinstance(meta, dict) else None)
        return await brokered.called(
            caller, params["name"], {} if arguments is None else arguments, call_id, float(wait_s)
        )
    except BrokerError as error:
        return _failed(error)


async def _answer(door: AgentDoor, call: tools.Call, request: Request, caller: Caller, attempt: str) -> bytes:
    """As the JSON routes answer. Raises Refused."""
    match call:
        case tools.Consume():
            await door.limit("consume", caller)
            return await door.consumed(caller, call.id, attempt)
        case tools.Check():
            await door.limit("check", caller)
            return await door.checked(caller, call.id)
        case tools.Inbox():
            await door.limit("inbox", caller)
            return await door.waiting(request, caller, float(call.wait_s), Instant(0), requests=True)
        case tools.Report():
            await door.limit("report", caller)
            return await door.reported(caller, call.id, call.outcome, call.note)


def _attempt(context: Context) -> str:
    """The client's key for this consume, from the call's `_meta`. Raises Malformed."""
    raw = (context.meta or {}).get(ATTEMPT, "")
    return names.attempt(raw, ATTEMPT) if raw else ""


def _failed(error: BrokerError, *, opaque: bool = False) -> Result:
    """What the JSON routes tell. opaque: it is a miss that the journal failed, or a verifier is away."""
    match error:
        case Malformed():
            text = str(error)
        case Refused():
            text = _SAID.get(error.reason, "not found")
        case _:
            text = "not found" if opaque else "unavailable: the broker can't answer for now"
    return {"content": [{"type": "text", "text": text}], "isError": True}
