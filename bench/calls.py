"""Tool calls by the official client, one at a time: each target in turn within each round, so that noise meets all.

Run as `python -m bench.calls` with one JSON line on its input: {"count": n, "targets": {name: target}}. A target is
{"argv": [...]}, or {"url": ..., "tool": ..., "ca": ..., "identity": ...}, with "json": true for the JSON route. Answers
one JSON line: {name: latencies in ms}.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

TEXT = "Finish the report before you begin with anything else, please."
WARM = 20
Call = Callable[[], Awaitable[None]]


async def opened(stack: AsyncExitStack, target: dict[str, Any]) -> Call:
    """A connection for many calls; each call checks that its text came back."""
    if "argv" in target:
        program, *args = target["argv"]
        client = await stack.enter_async_context(Client(StdioServerParameters(command=program, args=args)))
        return lambda: _official(client, "echo")
    verify = _context(target) if target.get("ca") else True
    http = await stack.enter_async_context(httpx2.AsyncClient(verify=verify, trust_env=False, timeout=30))
    if target.get("json"):
        return lambda: _by_json(http, target["url"], target["tool"])
    client = await stack.enter_async_context(Client(streamable_http_client(target["url"], http_client=http)))
    return lambda: _official(client, target["tool"])


def _context(target: dict[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(target["ca"])
    context.load_cert_chain(target["identity"])
    return context


async def _official(client: Client, tool: str) -> None:
    result = await client.call_tool(tool, {"text": TEXT})
    assert result.content[0].text == TEXT, result  # type: ignore[union-attr]


async def _by_json(http: httpx2.AsyncClient, url: str, tool: str) -> None:
    answer = await http.post(url, json={"name": tool, "arguments": {"text": TEXT}})
    assert answer.json()["content"][0]["text"] == TEXT, answer.text


async def main(plan: dict[str, Any]) -> dict[str, list[float]]:
    latencies: dict[str, list[float]] = {name: [] for name in plan["targets"]}
    async with AsyncExitStack() as stack:
        calls = {name: await opened(stack, target) for name, target in plan["targets"].items()}
        for number in range(WARM + plan["count"]):
            for name, call in calls.items():
                begun = time.perf_counter()
                await call()
                if number >= WARM:
                    latencies[name].append((time.perf_counter() - begun) * 1e3)
    return latencies


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.stdin.readline())))))
