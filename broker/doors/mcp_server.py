"""What /mcp is made of: the SDK's server with the directive tools and the brokered ones, carried out by the door."""

from __future__ import annotations

import json
import logging
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent

from broker.doors.agent import AgentDoor
from broker.doors.http import Request
from broker.doors.mcp import CALLER, MAX_BODY_BYTES, MESSAGE, REQUEST
from broker.doors.tools import ToolRoutes
from broker.errors import BrokerError, Malformed, Reason, Refused
from broker.wire import directive_tools as tools
from broker.wire import mcp_shapes, names
from broker.wire.caller import Caller
from broker.wire.names import Instant

ATTEMPT = "lever.dev/attempt"
logging.getLogger("mcp.server.streamable_http").setLevel(logging.WARNING)  # a line for every message otherwise
_SAID = {
    Reason.RATE_LIMITED: "too many calls: wait a minute",
    Reason.CLOCK_BEHIND: "the broker's clock is behind its journal: nothing is decided until the operator mends it",
}
Context = ServerRequestContext[Any, Any]


def manager(door: AgentDoor, brokered: ToolRoutes, version: str) -> StreamableHTTPSessionManager:
    """Stateless, answers in JSON; Host and Origin are judged by the door already."""

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        assert context.request is not None
        listed = [*tools.TOOLS, *brokered.gateway.tools(context.request.scope[CALLER])]
        return ListToolsResult(tools=mcp_shapes.tools(listed, context.protocol_version))

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        assert context.request is not None
        scope = context.request.scope
        try:
            if params.name not in tools.NAMES:
                return await _brokered(brokered, params.name, scope, context)
            call = tools.parse(params.name, params.arguments or {})
            raw = await _answer(door, call, scope[REQUEST], scope[CALLER], _attempt(context))
        except Malformed as error:
            return _failed(str(error))
        except Refused as error:
            return _failed(_SAID.get(error.reason, "not found"))
        except BrokerError:
            return _failed("not found")
        answer = json.loads(raw)
        text = json.dumps(answer, ensure_ascii=False, indent=2)
        return CallToolResult(content=[TextContent(text=text)], structured_content=answer)

    server = Server(
        "lever",
        version=version,
        title="Operator directives",
        instructions=tools.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    return StreamableHTTPSessionManager(
        server, json_response=True, stateless=True, max_request_body_size=MAX_BODY_BYTES
    )


async def _brokered(brokered: ToolRoutes, name: str, scope: Any, context: Context) -> CallToolResult:
    """A tool behind the gateway. Its arguments are those that the door has read, not what the SDK made of them."""
    await brokered.door.limit("call", scope[CALLER])
    call_id, wait_s = mcp_shapes.said_of(context.meta)
    arguments = scope[MESSAGE]["params"].get("arguments")
    result = await brokered.called(scope[CALLER], name, {} if arguments is None else arguments, call_id, float(wait_s))
    return mcp_shapes.result(result, context.protocol_version)


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
            return await door.waiting(request, caller, float(call.wait_s), Instant(0))
        case tools.Report():
            await door.limit("report", caller)
            return await door.reported(caller, call.id, call.outcome, call.note)


def _attempt(context: Context) -> str:
    """The client's key for this consume, from the call's `_meta`. Raises Malformed."""
    raw = (context.meta or {}).get(ATTEMPT, "")
    return names.attempt(raw, ATTEMPT) if raw else ""


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
