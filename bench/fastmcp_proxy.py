"""fastmcp's proxy before a command, with one session for all requests: its faster way.

Run by the Python of an environment that has fastmcp: `fastmcp_proxy.py PORT COMMAND...`.
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


async def main(port: int, program: str, *args: str) -> None:
    async with Client(StdioTransport(command=program, args=list(args))) as client:
        await create_proxy(client).run_http_async(port=port, json_response=True, show_banner=False, log_level="error")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
