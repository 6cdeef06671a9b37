"""What a program with an older official MCP client does. Run with that client's Python: DIRECTIVE_ID SERVER_ARGV..."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(id: str, program: str, *args: str) -> None:
    started = stdio_client(StdioServerParameters(command=program, args=list(args)))
    async with started as (read, write), ClientSession(read, write) as session:
        told = await session.initialize()
        tools = await session.list_tools()
        result = await session.call_tool("directive_consume", {"id": id})
        again = await session.call_tool("directive_consume", {"id": id})
    print(
        json.dumps(
            {
                "protocol": told.protocolVersion,
                "tools": [tool.name for tool in tools.tools],
                "consumed": result.structuredContent,
                "again": [again.isError, again.content[0].text],
            }
        )
    )


asyncio.run(main(*sys.argv[1:]))
