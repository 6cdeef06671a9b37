"""POST /mcp, a call that waits: for who asked for progress, its answer is a stream from the first sign of life on.

A call that is answered sooner is answered as any other. The events tell how long it has taken and nothing else: what
came of it is there when its end is durable, in the last of them (docs/decisions/0021).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from broker.doors.headers import Headers
from broker.doors.http import Response
from broker.wire import directive_tools, progress
from broker.wire.progress import Token
from broker.wire.strict_json import JsonValue

EVENTS: Final = "text/event-stream"
_NEVER = re.compile(rb"q=0(\.0*)?")
_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""What some readers take for the end of a line, JSON does not escape, and a tool may write into its answer."""
log = logging.getLogger("lever.doors")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose client wants to hear of its progress. id: the request's own; token: what the client knows the
    progress by."""

    id: Token
    token: Token


def asked(message: JsonValue, headers: Headers) -> Asked | None:
    """Is it the call of a brokered tool, with a progressToken, of a client that takes a stream of events?"""
    match message:
        case {
            "method": "tools/call",
            "id": str() | int() as id,
            "params": {"name": str() as name, "_meta": {"progressToken": str() | int() as token}},
        } if not isinstance(id, bool) and not isinstance(token, bool):
            waits = name not in directive_tools.NAMES and _takes_events(headers.get(b"accept", b""))
            return Asked(id, token) if waits else None
    return None


async def answered(work: Coroutine[Any, Any, Response], who: Asked, every_s: float) -> Response:
    """What the work gives, where it comes soon; else a stream that ends with it. Raises what the work raises."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=every_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.done():
        return task.result()
    return Response(200, content_type=EVENTS, stream=_events(task, who, every_s), is_answer=True)


async def _events(task: asyncio.Task[Response], who: Asked, every_s: float) -> AsyncIterator[bytes]:
    try:
        for times in count(1):
            yield _event(json.dumps(progress.notice(who.token, times * every_s)).encode())
            if (await asyncio.wait({task}, timeout=every_s))[0]:
                break
        yield _event(_last(task, who))
    except asyncio.CancelledError:  # the closing door, after its grace: whether the work was done is not known here
        yield _event(_error(who, "the broker is stopping"))
    finally:
        task.cancel()


def _last(task: asyncio.Task[Response], who: Asked) -> bytes:
    """The answer. The status has been told by now, so a fault is an error of the protocol here."""
    try:
        return task.result().body
    except Exception:
        log.exception("a handler failed", extra={"op": "mcp"})
        return _error(who, "unavailable")


def _error(who: Asked, why: str) -> bytes:
    error = {"code": -32603, "message": why}
    return json.dumps({"jsonrpc": "2.0", "id": who.id, "error": error}).encode()


def _event(message: bytes) -> bytes:
    """message: JSON without a line's end."""
    for end, escaped in _ENDS:
        message = message.replace(end, escaped)
    return b"event: message\ndata: %b\n\n" % message


def _takes_events(accept: bytes) -> bool:
    for word in accept.lower().split(b","):
        kind, *parameters = [part.strip() for part in word.split(b";")]
        if kind == EVENTS.encode():
            return not any(_NEVER.fullmatch(part) for part in parameters)
    return False
