"""Messages over standard input and output, one a line: read strictly, so that two readers can't differ on one."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, BinaryIO

import anyio
import anyio.to_thread
from mcp.types import INVALID_REQUEST, PARSE_ERROR

from broker.errors import Malformed
from broker.wire import strict_json

MAX_LINE_BYTES = 1 << 20


class Output:
    """Standard output, for whole lines of the protocol. What else the process prints goes to standard error."""

    def __init__(self) -> None:
        self._wire = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), encoding="utf-8", newline="\n")
        os.dup2(2, 1)
        self._lock = anyio.Lock()

    async def write(self, line: str) -> None:
        """One line, its end included."""
        async with self._lock:
            await anyio.to_thread.run_sync(self._write, line)

    async def flush(self) -> None:
        """Every line has left already."""

    def _write(self, line: str) -> None:
        self._wire.write(line)
        self._wire.flush()


class Input:
    """The lines of standard input that are one strict JSON object each; any other is answered with an error."""

    def __init__(self, output: Output, source: BinaryIO | None = None) -> None:
        self._output = output
        self._source = source or sys.stdin.buffer

    async def __aiter__(self) -> AsyncIterator[str]:
        while line := await anyio.to_thread.run_sync(self._read):
            if not line.strip():
                continue
            try:
                message = strict_json.parse(line, "message", max_bytes=MAX_LINE_BYTES)
            except Malformed as error:
                id = _id_of(line)
                await self._refuse(PARSE_ERROR if id is None else INVALID_REQUEST, str(error), id)
                continue
            if isinstance(message, dict):
                yield line.decode("utf-8")
            else:
                await self._refuse(INVALID_REQUEST, "message: expected a JSON object; batches are not taken")

    def _read(self) -> bytes:
        """The next line; of one that is too long its beginning, which is no JSON."""
        line = self._source.readline(MAX_LINE_BYTES + 1)
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = self._source.readline(MAX_LINE_BYTES + 1)
        return line

    async def _refuse(self, code: int, message: str, id: str | int | None = None) -> None:
        answer = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
        await self._output.write(json.dumps(answer) + "\n")


def _id_of(line: bytes) -> str | int | None:
    """Whose answer the refusal of this line is, so that nobody waits for it in vain; None where readers may differ."""
    try:
        message = json.loads(line, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return None
    id = message.get("id") if isinstance(message, dict) else None
    ours = isinstance(id, str) or (type(id) is int and abs(id) <= strict_json.MAX_INTEGER)
    return id if ours and "method" in message else None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len({name.casefold() for name in members}) < len(pairs):
        raise ValueError("a key twice")
    return members
