"""A light HTTPS client: so many connections, each with its own certificate, each sending its bodies one after another.

Run as `python -m bench.client PORT CA`, or `-` for the CA to speak plain HTTP, with one JSON line on its input:
{"clients": [{"identity": path, "bodies": [...], "head": ...}], "expect": a text in each answer}. Answers one JSON line:
{"seconds": whole, "p50_ms": ..., "bad": the beginnings of the first answers that were not good}.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import statistics
import sys
import time
from typing import Any

import uvloop

HEAD = "POST /directive/consume HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


class Line(asyncio.Protocol):
    """One kept-alive connection: `bodies` in turn, a latency for each."""

    def __init__(
        self, client: dict[str, Any], expect: bytes, done: asyncio.Future[None], latencies: list[float]
    ) -> None:
        head, bodies = client.get("head", HEAD), client["bodies"]
        self.expect = expect
        self.requests = [f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode() for body in reversed(bodies)]
        self.done, self.latencies, self.bad = done, latencies, list[str]()
        self.buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def go(self) -> None:
        self.begun = time.perf_counter()
        self.transport.write(self.requests.pop())

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.buffer.lower().find(b"content-length:")
        length = int(self.buffer[at + 15 : self.buffer.find(b"\r", at)])
        if len(self.buffer) < head + 4 + length:
            return
        self.latencies.append(time.perf_counter() - self.begun)
        if not (self.buffer.startswith(b"HTTP/1.1 200") and self.expect in self.buffer):
            self.bad.append(self.buffer[:500].decode(errors="replace"))
        self.buffer = b""
        if self.requests:
            self.go()
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))


async def run(port: int, ca: str, plan: dict[str, Any]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    lines = []
    for client in plan["clients"]:
        context = None
        if ca != "-":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(ca)
            context.load_cert_chain(client["identity"])
        line = Line(client, plan.get("expect", "").encode(), loop.create_future(), latencies)
        await loop.create_connection(lambda line=line: line, "127.0.0.1", port, ssl=context)  # type: ignore[misc]
        lines.append(line)
    begun = time.perf_counter()
    for line in lines:
        line.go()
    await asyncio.gather(*(line.done for line in lines))
    seconds = time.perf_counter() - begun
    for line in lines:
        line.transport.close()
    return {
        "seconds": seconds,
        "p50_ms": statistics.median(latencies) * 1e3,
        "bad": [bad for line in lines for bad in line.bad][:3],
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(int(sys.argv[1]), sys.argv[2], json.loads(sys.stdin.readline())))))
