"""What a tool server says: its definitions, its answers, its standard error. It is nobody's friend."""

from __future__ import annotations

import asyncio
import json
import logging

from broker.effects.tool_servers import catalogue, events, values
from broker.effects.tool_servers.connection import _outcome
from broker.effects.tool_servers.outcome import Done, Failed, Unknown
from broker.effects.tool_servers.speech import Speech
from broker.errors import Malformed
from broker.wire import catalogue as wire_catalogue
from broker.wire import server_identity, strict_json
from broker.wire.names import Instant
from broker.wire.strict_json import JsonObject, as_object
from tests.fuzz.target import Target

_TOOL = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}
_PAGES = (
    json.dumps([{"tools": [_TOOL, {**_TOOL, "name": "write"}], "nextCursor": "2"}, {"tools": []}]).encode(),
    json.dumps([{"tools": [_TOOL]}]).encode(),
)
_ANSWERS = (
    b'{"content":[{"type":"text","text":"\\u20ac"}],"isError":true}',
    b'{"content":[],"resultType":"input_required"}',
)


def _lenient(raw: bytes) -> object:
    """As the SDK's reader hands it over: with half surrogate pairs, doubled keys and numbers of any size."""
    try:
        return json.loads(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Malformed("json", "none") from error


def _definitions(raw: bytes) -> object:
    """Pages as they come, one after the other; and whatever is taken, pinned or told to be unfit."""
    pages = _lenient(raw)
    if not isinstance(pages, list):
        raise Malformed("pages", "none")
    left = iter(pages)

    async def page(_cursor: str | None) -> JsonObject:
        return as_object(next(left, {}), "page")

    found = asyncio.run(catalogue.definitions(page))
    listing = wire_catalogue.listing("files", server_identity.NOBODY, found)
    if not all(why.isascii() and why.isprintable() for why in listing.unfit.values()):
        raise AssertionError(f"told {listing.unfit!r}")
    json.dumps([*listing.tools, *listing.unfit]).encode()
    return found


def _answer(raw: bytes) -> Done | Failed:
    found = _outcome(as_object(_lenient(raw), "answer"))  # type: ignore[arg-type]
    json.loads(found.result if isinstance(found, Done) else found.error)
    return found


def _counted(raw: bytes) -> object:
    """What is counted in a message by its bytes is never less than what it holds, and both kinds of servers agree."""
    if events.against(raw) and values.at_most(raw) <= values.MAX_TYPED:
        raise AssertionError("a small message is not read")
    try:
        message = values.read(raw)
    except ValueError as error:
        raise Malformed("message", "not read") from error
    if strict_json.counted(message, values.MAX_VALUES) > 2 * values.at_most(raw):
        raise AssertionError("more values than brackets and commas")
    return message


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(getattr(record, "line", ""))


def _speech(raw: bytes) -> object:
    """In pieces of odd sizes. No line of it is a line, or a command, of a log or a terminal."""
    heard, log = _Heard(), logging.getLogger("lever.tool_servers")
    log.addHandler(heard)
    before, log.propagate = log.propagate, False
    log.setLevel(logging.INFO)
    try:
        speech = Speech("files", lambda: Instant(0))
        for at in range(0, len(raw), 997):
            speech.feed(raw[at : at + 997])
        speech.end()
    finally:
        log.propagate = before
        log.removeHandler(heard)
    for line in heard.lines:
        if not line.isprintable() or len(line) > 20_000:
            raise AssertionError(f"wrote {line!r}")
    return tuple(heard.lines)


TARGETS = (
    Target("definitions of a server", ("broker.effects.tool_servers.catalogue.definitions",
                                       "broker.wire.catalogue.listing"), _definitions, _PAGES,
           tuple, tries=400),
    Target("answer of a server", ("broker.effects.tool_servers.connection._outcome",), _answer, _ANSWERS,
           Done | Failed, (Malformed, Unknown)),
    Target("message of a server", tuple(f"broker.effects.tool_servers.{name}" for name in
                                        ("values.read", "values.at_most", "events.against")), _counted,
           (b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a,[{"}]}}', b"[[],[1,{}]]")),
    Target("standard error of a server", ("broker.effects.tool_servers.speech.Speech.feed",), _speech,
           (b"started\nlistening on 1\n", b"Traceback (most recent call last):\n  x\n"), tuple, (), tries=400),
)  # fmt: skip
