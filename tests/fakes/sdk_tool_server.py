"""A tool server made with the official SDK: over standard input and output as a program, over HTTP within a test."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool
from starlette.applications import Starlette
from starlette.routing import Mount

Context = ServerRequestContext[Any, Any]
NAMES = ("echo", "pid", "fails", "silent", "headers", "session")


def build() -> Server[Any]:
    """echo gives back its arguments as it understood them."""

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in NAMES])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        request = context.request
        match params.name:
            case "echo":
                words = json.dumps(params.arguments)
            case "pid":
                words = str(os.getpid())
            case "silent":
                await asyncio.Event().wait()
                raise AssertionError
            case "headers":
                words = json.dumps(dict(request.headers)) if request else "{}"
            case "session":
                words = request.headers.get("mcp-session-id", "") if request else ""
            case name:
                return CallToolResult(content=[TextContent(text=f"no: {name}")], is_error=True)
        return CallToolResult(content=[TextContent(text=words)])

    return Server("sdk", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


@contextmanager
def over_http(*, json_response: bool) -> Iterator[str]:
    """The URL of one, while this lasts."""
    manager = StreamableHTTPSessionManager(build(), json_response=json_response)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


async def main() -> None:
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
