"""A plain port on the loopback that leads to the agent door as an agent: for programs that can't show a certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

CHUNK = 65536


def presenting(identity: Path) -> ssl.SSLContext:
    """TLS with this identity folder: identity.pem holds the certificate, its key and the one CA that is believed."""
    file = identity / "identity.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(file)
    context.load_cert_chain(file)
    return context


@asynccontextmanager
async def forwarding(door_port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """The port, while it forwards: bytes as they come, so that the door judges every header that was sent."""
    joined: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_join(reader, writer, door_port, context))
        joined.add(task)
        task.add_done_callback(joined.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in joined:
            task.cancel()
        await asyncio.gather(*joined, return_exceptions=True)


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, door_port: int, context: ssl.SSLContext
) -> None:
    """One connection to the door for each to us. When one side ends, so does the other: TLS knows no half of one."""
    door_reader, door_writer = await asyncio.open_connection("127.0.0.1", door_port, ssl=context)
    await asyncio.gather(_pump(reader, door_writer), _pump(door_reader, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass  # the program broke off; the suites do it on purpose
    finally:
        sink.close()
