"""The body of an HTTP answer that is a stream of events, judged event by event before the SDK reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from broker.effects.tool_servers import values
from broker.effects.tool_servers.link import Link, Passage


class Events(httpx2.AsyncByteStream):
    """A stream of events as it comes. One that ends before it was closed has not brought its answer.

    most_bytes: of one line; of the whole stream, where it is_answer.
    """

    def __init__(
        self, inner: httpx2.AsyncByteStream, link: Link, passage: Passage, most_bytes: int, *, is_answer: bool
    ) -> None:
        self._inner = inner
        self._link = link
        self._passage = passage
        self._most_bytes = self._left = most_bytes
        self._is_answer = is_answer
        self._rest = bytearray()
        self._data: list[bytes] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._is_answer and self._left < 0:
                self._passage.astray = "its answer is longer than what a call may bring"
                return
            told, why = self._judged(self._lines(chunk))
            if told:
                yield told
            if why:
                self._passage.astray = why
                return
        if self._rest.endswith(b"\r"):  # a line feed might have come
            told, self._passage.astray = self._judged([bytes(self._rest)])
            yield told
        self._passage.astray = self._passage.astray or "the connection was lost"

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole now."""
        ends = self._rest.endswith(b"\r") or b"\r" in chunk or b"\n" in chunk
        self._rest += chunk
        if not ends:
            return []
        lines = bytes(self._rest).splitlines(keepends=True)
        self._rest.clear()
        if lines and not lines[-1].endswith(b"\n"):  # after a carriage return its line feed may come
            self._rest += lines.pop()
        return lines

    def _judged(self, lines: list[bytes]) -> tuple[bytes, str]:
        """What may go on to the SDK, and why nothing more may. It reads an event at the blank line after it."""
        told = bytearray()
        for line in lines:
            words = line.rstrip(b"\r\n")
            name, _, value = words.partition(b":")
            if name == b"data":
                self._data.append(value)
            elif not words and self._data:
                why = against(b"\n".join(self._data))
                self._data.clear()
                if why:
                    self._link.lose(why)
                    return bytes(told), why
            told += words + b"\n"  # a carriage return alone would be a blank line to the SDK, at the end of all
        if len(self._rest) > self._most_bytes:  # of what goes on the SDK bounds an event
            return bytes(told), "a line of it is longer than what a call may bring"
        return bytes(told), ""


def against(raw: bytes) -> str:
    """Why the SDK is not to read this message; empty for what it reads in no time, be it a message or not."""
    if values.at_most(raw) <= values.MAX_TYPED:
        return ""
    try:
        values.read(raw)
    except values.TooMany as error:
        return str(error)
    except ValueError:
        return "its answer is none of the protocol"
    return ""
