"""The MCP server that an agent's harness starts: directive tools and brokered ones over standard input and output."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from broker.errors import Malformed
from broker.wire import directive_tools as tools
from broker.wire import mcp_shapes
from broker.wire.progress import EVERY_S
from lever.agent.failures import AgentFailure
from lever.agent.mcp import progress
from lever.agent.mcp.calls import Desk, words
from lever.agent.mcp.lines import Input, Output

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.types import CallToolRequestParams, PaginatedRequestParams

CALLS_AT_ONCE = 8
BROKERED_AT_ONCE = 16
"""As many as the broker lets run: they may take minutes, and nothing else shall wait for them."""


def serve(desk: Desk, version: str) -> None:
    """Answer until standard input ends."""
    anyio.run(_serve, desk, version)


async def _serve(desk: Desk, version: str) -> None:
    output = Output()
    server = build(desk, version)
    # The streams are ours: they are files to the SDK as far as it uses them.
    async with stdio_server(Input(output), output) as (read, write):  # type: ignore[arg-type]
        await server.run(read, write, server.create_initialization_options())


def build(desk: Desk, version: str, progress_every_s: float = EVERY_S) -> Server[Any]:
    """The server, whatever it is joined to."""
    directive_tools = [Tool.model_validate(tool) for tool in tools.TOOLS]
    room, brokered_room = anyio.CapacityLimiter(CALLS_AT_ONCE), anyio.CapacityLimiter(BROKERED_AT_ONCE)

    async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        brokered = await anyio.to_thread.run_sync(desk.listed, abandon_on_cancel=True)
        return ListToolsResult(tools=[*directive_tools, *mcp_shapes.tools(brokered, context.protocol_version)])

    async def brokered(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        call = partial(desk.call, params.name, params.arguments or {}, *mcp_shapes.said_of(context.meta))
        work = partial(anyio.to_thread.run_sync, call, abandon_on_cancel=True, limiter=brokered_room)
        result = await progress.meanwhile(context.session, progress_every_s, work)
        return mcp_shapes.result(result, context.protocol_version)

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        begun_at = desk.clock()
        try:
            if params.name not in tools.NAMES:
                return await brokered(context, params)
            call = tools.parse(params.name, params.arguments or {})
            # A client that gives up does not stop the call: what it fetched is there when it asks again.
            answer = await anyio.to_thread.run_sync(partial(desk.answer, call), abandon_on_cancel=True, limiter=room)
        except Malformed as error:
            return _failed(str(error))
        except AgentFailure as error:
            return _failed(words(error))
        desk.taken(call, begun_at)
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


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
