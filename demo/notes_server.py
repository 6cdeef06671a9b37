"""A tool server whose description is a file beside it: for the demo, so that it can be poisoned."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool

Context = ServerRequestContext[Any, Any]


async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    schema = {"type": "object", "properties": {}}
    description = await asyncio.to_thread(Path(sys.argv[1]).read_text)
    return ListToolsResult(tools=[Tool(name="read", description=description, input_schema=schema)])


async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(text="Milk, bread, a release on Friday.")])


async def main() -> None:
    server = Server("notes", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
