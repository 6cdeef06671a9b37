"""One session with one server, for one holder: opened once, asked many things, closed for good."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeAlias

from mcp import ClientSession, MCPError
from mcp.client.session import IncomingMessage
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.dispatcher import CallOptions
from mcp.shared.message import SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequest,
    CallToolRequestParams,
    ErrorData,
    Implementation,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import RootModel, ValidationError

from broker.effects.tool_servers import catalogue
from broker.effects.tool_servers.link import PASSAGE, Link, Passage
from broker.effects.tool_servers.look import Look
from broker.effects.tool_servers.outcome import Done, Failed, NotSent, Outcome, Unknown
from broker.wire import catalogue as definitions
from broker.wire import server_identity
from broker.wire.catalogue import Listing, PinnedTool
from broker.wire.server_identity import ServerIdentity
from broker.wire.strict_json import JsonObject

START_S = 30.0
DOUBT_S = 5.0
_CLOSED = (CONNECTION_CLOSED, "Connection closed")  # the SDK's own words again
_SELF = Implementation(name="lever", version="1")
# They would put arguments and results into the log.
for _name in ("client", "mcp.client", "mcp.shared", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

Request: TypeAlias = CallToolRequest | ListToolsRequest
Streams: TypeAlias = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]
Way: TypeAlias = Callable[[Link], AbstractAsyncContextManager[Streams]]
"""How a server is started or reached. Raises NotSent."""


class _Whole(RootModel[dict[str, Any]]):
    """A result as it came: the SDK's own types leave out what they don't know."""


class Connection:
    """way: opens its streams; room: for one list of this server's at a time to be read, whoever's connection it came
    over. Everything runs in one task. That the server's tools changed is believed of this connection alone: others have
    their own, and one holder's process is not to keep another's from its calls."""

    def __init__(self, way: Way, idle_s: float, room: asyncio.Lock) -> None:
        self.used = 0
        self.in_hand = 0
        self.failed = False
        self.link = Link(tools_changed=self.forget)
        self.server: JsonObject = {}
        self.look: Look | None = None
        self._changes = 0
        self._looking = asyncio.Lock()
        self._way = way
        self._room = room
        self._idle_s = idle_s
        self._idle: asyncio.TimerHandle | None = None
        self._free = asyncio.Event()
        self._closing = False
        self._doubts: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def worn(self) -> bool:
        """It takes no further call."""
        return self.link.worn or self.task.done()

    def retire(self) -> None:
        """No further call; the end comes with the end of what is in hand."""
        self._closing = True
        self.link.wear()

    def close(self) -> None:
        """The end comes now."""
        self._closing = True
        self.link.lose("the broker ended it")
        if not self._opened.done():
            self.task.cancel()

    def forget(self) -> None:
        """Its tools may have changed: no call before another look."""
        self._changes += 1
        self.look = None

    def defines(self, tool: PinnedTool) -> bool:
        """Is this tool, to the last word, what the server defines here, as far as is known?"""
        return self.look is not None and self.look.listing.tools.get(tool.name) == tool

    async def see(self, server: str, reached: str, at: float, since: float) -> Look:
        """What this very connection's other end defines; a look from after `since` will do. Raises NotSent, Malformed.

        server: its name here; reached: as in its identity; at: now.
        """
        async with self._looking:
            if self.look and self.look.at > since:
                return self.look
            before = self._changes
            try:
                async with asyncio.timeout(START_S):
                    raw = await catalogue.definitions(self.page)
            except TimeoutError as error:
                raise NotSent(f"its tools can't be listed: no answer came within {START_S:g} s") from error
            identity = server_identity.of(self.server.get("name", ""), self.server.get("version", ""), reached)
            async with self._room:
                look = Look(at, await asyncio.to_thread(_listing, self._opened.result(), server, identity, raw))
            if self._changes == before:  # else it is out of date already
                self.look = look
            return look

    @asynccontextmanager
    async def held(self) -> AsyncIterator[ClientSession]:
        """Kept open, and sound when it begins. Raises NotSent."""
        self.in_hand += 1
        self._free.clear()
        if self._idle:
            self._idle.cancel()
        try:
            session = self._opened.result() if self._opened.done() else await asyncio.shield(self._opened)
            if self._doubts:
                await asyncio.wait({self._doubts})
            if self.link.lost:
                raise NotSent(self.link.lost)
            yield session
        finally:
            self.in_hand -= 1
            if not self.in_hand:
                self._free.set()
            if not self.in_hand and not self.worn:
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self.retire)

    async def call(self, tool: PinnedTool, arguments: bytes, timeout_s: float) -> Outcome:
        """Send it once, where the tool is still defined so. arguments: frozen. Raises NotSent, Unknown."""
        async with self.held() as session:
            if not self.defines(tool):
                raise NotSent("its tools may have changed since they were looked at")
            version = session.protocol_version or ""
            if self.link.direct and version in HANDSHAKE_PROTOCOL_VERSIONS:
                answer = await self._answer(session, self.link.direct.call(tool.name, arguments, version), timeout_s)
            else:
                values = json.loads(arguments)
                request = CallToolRequest(params=CallToolRequestParams(name=tool.name, arguments=values))
                answer = await self._answer(session, self._by_sdk(_whole(session, request)), timeout_s)
        if isinstance(answer, ErrorData):
            return Failed(_encoded(answer.model_dump(mode="json", by_alias=True, exclude_unset=True)), is_result=False)
        return _outcome(answer)

    async def page(self, cursor: str | None) -> JsonObject:
        """One page of tools/list. Raises NotSent."""
        request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        async with self.held() as session:
            try:
                answer = await self._answer(session, self._by_sdk(_unread(session, request)), START_S)
            except Unknown as error:
                raise NotSent(f"its tools can't be listed: {error.why}") from error
        if isinstance(answer, ErrorData):
            raise NotSent(f"its tools can't be listed: it answered with error {answer.code}")
        return answer

    async def _answer(
        self, session: ClientSession, answer: Awaitable[dict[str, Any] | ErrorData], timeout_s: float
    ) -> dict[str, Any] | ErrorData:
        """The result as it came, or the server's own error. Raises NotSent, Unknown."""
        passage = Passage()
        before = PASSAGE.set(passage)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            self.link.wear()  # it may be stuck: the next call gets another
            raise _no_answer(passage, f"no answer came within {timeout_s:g} s") from error
        except asyncio.CancelledError:
            self._doubt(session)
            raise
        except (NotSent, Unknown):
            raise
        except Exception as error:  # whatever a library makes of a hostile answer
            raise Unknown(f"its answer is none of the protocol ({type(error).__name__})") from error
        finally:
            PASSAGE.reset(before)

    async def _by_sdk(self, answer: Awaitable[dict[str, Any]]) -> dict[str, Any] | ErrorData:
        passage = PASSAGE.get() or Passage()
        try:
            return await answer
        except MCPError as error:
            if why := passage.unsent or passage.astray or self.link.lost:
                raise _no_answer(passage, why) from error
            if error.error.code == PARSE_ERROR:  # the SDK's own word for an answer that it can't read
                raise Unknown("its answer is none of the protocol") from error
            if (error.error.code, error.error.message) == _CLOSED:
                self.link.wear()
                raise Unknown("the connection was lost") from error
            return error.error

    async def _run(self) -> None:
        try:
            await self._live()
        except NotSent as error:
            self._fail(error)
        except TimeoutError:
            self._fail(NotSent(f"it was not ready within {START_S:g} s"))
        except Exception as error:  # whatever a library makes of a hostile server
            self._fail(NotSent(self.link.lost or f"the protocol failed: {type(error).__name__}"))
        finally:
            self.failed = bool(self.link.lost) and not self._closing
            self.link.lose("its connection has ended")
            if self._idle:
                self._idle.cancel()
            if not self._opened.done():
                self._opened.set_exception(NotSent(self.link.lost))

    def _fail(self, error: NotSent) -> None:
        self.link.lose(error.what)
        if not self._opened.done():
            self._opened.set_exception(error)

    async def _live(self) -> None:
        async with (
            asyncio.timeout(START_S) as starting,
            self._way(self.link) as (read, write),
            ClientSession(read, write, message_handler=self._hear, client_info=_SELF) as session,
        ):
            try:
                await self._greet(session)
            except NotSent as error:  # here: a task group would wrap it
                self._fail(error)
                return
            starting.reschedule(None)
            if not self._opened.done():
                self._opened.set_result(session)
            await self.link.changed.wait()
            while self.in_hand and not self.link.lost:
                await self._until_free_or_lost()
            if self._doubts:
                self._doubts.cancel()
            self._closing = self._closing or not self.link.lost
            self.link.lose("its connection has ended")  # before it is taken down: nobody is to send over it now

    async def _until_free_or_lost(self) -> None:
        self.link.changed.clear()
        waits = [asyncio.ensure_future(event.wait()) for event in (self._free, self.link.changed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _greet(self, session: ClientSession) -> None:
        """By the older handshake, which every server of today answers; else by the newer. Raises NotSent."""
        passage = Passage()
        PASSAGE.set(passage)
        try:
            try:
                await session.initialize()
            except MCPError as error:
                if error.error.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION) or passage.astray:
                    raise
                await session.discover()
        except MCPError as error:
            why = passage.unsent or passage.astray or self.link.lost or f"it answered with error {error.error.code}"
            raise NotSent(why) from error
        except (ValidationError, RuntimeError) as error:
            raise NotSent("its greeting is none of a version of the protocol that is known") from error
        about = (
            session.server_info.model_dump(mode="json", by_alias=True, exclude_none=True) if session.server_info else {}
        )
        self.server = {**about, "protocolVersion": session.protocol_version}

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification) and not self.link.direct:  # which hears it sooner
            self.link.tools_changed()

    def _doubt(self, session: ClientSession) -> None:
        """Its call was cancelled: it shows that it lives before it gets another."""
        if session.initialize_result and not self._doubts and not self.link.lost:
            self._doubts = asyncio.get_running_loop().create_task(self._prove(session))

    async def _prove(self, session: ClientSession) -> None:
        try:
            async with asyncio.timeout(DOUBT_S):
                await session.send_ping()
        except MCPError:
            pass  # an answer, or the end of the connection, which is known elsewhere
        except Exception:  # of whatever kind: it is not sound
            self.link.lose("it did not come back from a call that was cancelled")
        finally:
            self._doubts = None


async def _whole(session: ClientSession, request: Request) -> dict[str, Any]:
    return (await session.send_request(request, _Whole)).root


async def _unread(session: ClientSession, request: Request) -> dict[str, Any]:
    """As it came, whatever is in it: for one definition that is none the SDK would refuse the whole list."""
    data = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    options: CallOptions = {}
    session._stamp(data, options)
    return await session._dispatcher.send_raw_request(data["method"], data.get("params"), options)


def _listing(session: ClientSession, server: str, identity: ServerIdentity, raw: Sequence[object]) -> Listing:
    """What the list says, and what the session has to know of it. In a thread: a hostile list takes long."""
    _learn(session, raw)
    return definitions.listing(server, identity, raw)


def _learn(session: ClientSession, listed: Iterable[object]) -> None:
    """The newer protocol repeats some arguments in headers: the SDK takes from the definitions which."""
    for definition in listed:
        with suppress(ValidationError):
            session._absorb_tool_listing(ListToolsResult(tools=[Tool.model_validate(definition)]), complete=False)


def _no_answer(passage: Passage, why: str) -> NotSent | Unknown:
    return NotSent(passage.unsent) if passage.unsent else Unknown(why)


def _outcome(result: dict[str, Any]) -> Outcome:
    """Raises Unknown."""
    if result.get("resultType", "complete") != "complete":
        asked = {"code": -32600, "message": "the tool asked for more input, which it does not get"}
        return Failed(_encoded(asked), is_result=False)
    raw, failed = _encoded(result), result.get("isError", False)
    if type(failed) is not bool:  # "off" is false to some readers
        raise Unknown("its answer is none of the protocol")
    return Failed(raw, is_result=True) if failed else Done(raw)


def _encoded(value: object) -> bytes:
    """Raises Unknown."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        raise Unknown("its answer is no JSON") from error
