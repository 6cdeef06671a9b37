"""A tool server by the official SDK, over standard input and output: one tool that gives its text back."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

Context = ServerRequestContext[Any, Any]
ECHO = Tool(
    name="echo",
    description="Gives the text back.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    annotations=ToolAnnotations(read_only_hint=True),
)


async def listed(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[ECHO])


async def called(context: Context, params: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=str((params.arguments or {})["text"]))])


async def main() -> None:
    server = Server("echo", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
