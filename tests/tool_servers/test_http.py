"""Servers over Streamable HTTP: the SDK's own, and ones that misbehave on the wire."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.config import Reference
from broker.effects.tool_servers import Failed, NotSent, Unknown
from broker.wire.server_identity import ServerIdentity
from tests.fakes import sdk_tool_server
from tests.tool_servers.conftest import Make
from tests.tool_servers.setting import A, AServer, B, Watch, ask, looked, sent, text_of, until
from tests.tool_servers.test_calls import FROZEN, exactly


@pytest.fixture(scope="module", params=[True, False], ids=["json", "events"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with sdk_tool_server.over_http(json_response=request.param) as url:
        yield url


def at(url: str, **more: object) -> AServer:
    return AServer(command=None, url=url, **more)  # type: ignore[arg-type]


@pytest.mark.promise("P36")
@pytest.mark.parametrize("frozen", FROZEN)
async def test_every_number_text_and_order_arrives_as_it_was_frozen(make: Make, url: str, frozen: bytes) -> None:
    servers = make({"s": at(url)})
    assert exactly(text_of(await sent(servers, A, "s", "echo", frozen, 30))) == exactly(frozen)


async def test_each_holder_has_a_session_of_its_own(make: Make, url: str) -> None:
    servers = make({"s": at(url)})
    mine, theirs = await ask(servers, "session", A), await ask(servers, "session", B)
    assert mine
    assert mine != theirs
    assert await ask(servers, "session", A) == mine


async def test_credentials_go_into_headers_and_nothing_of_the_environment_does(
    make: Make, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    (tmp_path / "token").write_text("Bearer one\n")
    servers = make({"s": at(url, headers={"Authorization": Reference("file", str(tmp_path / "token"))})})
    arrived = json.loads(await ask(servers, "headers"))
    assert arrived["authorization"] == "Bearer one"
    assert arrived["accept-encoding"] == "identity", "what is compressed can't be bounded"


async def test_errors_time_outs_and_cancelled_calls(make: Make, url: str) -> None:
    servers = make({"s": at(url)})
    failed = await sent(servers, A, "s", "fails", b"{}", 30)
    assert isinstance(failed, Failed)
    assert failed.is_result
    session = await ask(servers, "session")
    call = asyncio.create_task(sent(servers, A, "s", "silent", b"{}", 30))
    await until(lambda: servers._current["s", A].in_hand == 1)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await ask(servers, "session") == session, "a sound session goes on"
    with pytest.raises(Unknown, match="no answer came within"):
        await sent(servers, A, "s", "silent", b"{}", 0.3)
    assert await ask(servers, "session") != session


async def test_the_tools_are_listed(make: Make, url: str) -> None:
    servers = make({"s": at(url)})
    listing = await looked(servers)
    assert [*listing.tools] == list(sdk_tool_server.NAMES)
    assert listing.identity == ServerIdentity("sdk", "1", url)


async def test_an_answer_has_its_bound(make: Make, url: str) -> None:
    servers = make({"s": at(url, max_output_bytes=20_000)})
    assert len(await ask(servers, "echo", x="y" * 15_000)) > 15_000
    with pytest.raises(Unknown, match="its answer"):
        await ask(servers, "echo", x="y" * 30_000)
    assert await ask(servers, "echo", x="y")


async def test_who_does_not_listen_was_never_asked(make: Make, watch: Watch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    servers = make({"s": at(f"http://127.0.0.1:{port}/mcp")})
    with pytest.raises(NotSent, match=r"^s: it can't be reached: "):
        await sent(servers, A, "s", "pid", b"{}", 30)
    await until(lambda: servers.connections == 0)
    with pytest.raises(NotSent, match=r"it is tried again in 1 s$"):
        await sent(servers, A, "s", "pid", b"{}", 30)


Act = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def misbehaving(act: Act) -> AsyncIterator[str]:
    """A server of the wire's own: it greets well; at a tools/call it does `act`, given the call's id."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"POST"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                message = json.loads(await reader.readexactly(length))
                if message["method"] == "tools/call":
                    await act(message["id"], writer)
                    return
                if message["method"] == "initialize":
                    about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "bad", "version": "1"}}  # fmt: skip
                    writer.write(whole(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": about})))
                elif message["method"] == "tools/list":
                    tools = {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]}
                    writer.write(whole(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": tools})))
                else:
                    writer.write(whole(202, ""))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


def whole(status: int, body: str, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return (head + body).encode()


def says(raw: bytes | Callable[[int], bytes]) -> Act:
    async def act(id: int, writer: asyncio.StreamWriter) -> None:
        writer.write(raw if isinstance(raw, bytes) else raw(id))
        await writer.drain()

    return act


def result(id: int, content: object) -> bytes:
    return whole(200, json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": content}}))


def error(id: int, code: int) -> bytes:
    return whole(400, json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}))


EVENTS = b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n"


@pytest.mark.promise("P23")
@pytest.mark.parametrize(
    ("act", "why"),
    [
        (says(b""), "the connection was lost"),
        (says(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{"), "tion was lost"),
        (says(EVENTS), "the connection was lost"),
        (says(EVENTS + b"event: message\ndata: {half"), "the connection was lost"),
        (says(EVENTS + b"event: message\ndata: {}\n\n"), "its answer is none of the protocol"),
        (says(EVENTS + b": still here\n\n" * 20000), "its answer is longer than what a call may bring"),
        (says(whole(502, "bad gateway", "text/plain")), "it answered with HTTP status 502"),
        (says(whole(504, "{}")), "it answered with HTTP status 504"),
        (says(whole(200, "<html>", "text/html")), "it answered with HTTP status 200 and no message of the protocol"),
        (says(whole(200, "{}" + " " * 200_000)), "its answer has more than 100000 bytes"),
        (says(whole(200, "{}", more="content-encoding: gzip\r\n")), "its answer is compressed"),
        (says(whole(200, "no JSON")), "its answer is none of the protocol"),
        (says(lambda id: result(id, "none")), "its answer is none of the protocol"),
    ],
)  # fmt: skip
async def test_what_is_no_answer_of_the_server_is_unknown(make: Make, act: Act, why: str) -> None:
    async with misbehaving(act) as url:
        servers = make({"s": at(url)})
        with pytest.raises(Unknown, match=why):
            await sent(servers, A, "s", "x", b"{}", 30)
        await servers.stop()


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (says(lambda id: error(id, -32000)), -32000),
        (says(whole(401, "who are you", "text/plain")), -32603),
        (says(whole(404, "no such session", "text/plain")), -32601),
        (says(whole(307, "", more="location: http://127.0.0.2:1/\r\n")), -32600),
    ],
)
async def test_a_refusal_of_the_call_is_a_failure(make: Make, act: Act, code: int) -> None:
    async with misbehaving(act) as url:
        servers = make({"s": at(url)})
        outcome = await sent(servers, A, "s", "x", b"{}", 30)
        assert isinstance(outcome, Failed)
        assert not outcome.is_result
        assert json.loads(outcome.error)["code"] == code
        await servers.stop()


async def test_a_call_s_lost_connection_is_no_other_call_s_affair(make: Make) -> None:
    arrived: list[int] = []
    lost = asyncio.Event()

    async def act(id: int, writer: asyncio.StreamWriter) -> None:
        arrived.append(id)
        if len(arrived) == 1:
            await lost.wait()
            writer.write(result(id, [{"type": "text", "text": "late"}]))

    async with misbehaving(act) as url:
        servers = make({"s": at(url)})
        slow = asyncio.create_task(sent(servers, A, "s", "x", b"{}", 30))
        await until(lambda: len(arrived) == 1)
        with pytest.raises(Unknown, match="the connection was lost"):
            await sent(servers, A, "s", "x", b"{}", 30)
        lost.set()
        assert text_of(await slow) == "late"
        await servers.stop()


async def test_a_session_whose_server_has_gone_sends_nothing(make: Make) -> None:
    async with misbehaving(says(lambda id: result(id, [{"type": "text", "text": "here"}]))) as url:
        servers = make({"s": at(url)})
        assert await ask(servers, "x") == "here"
    with pytest.raises(NotSent, match=r"^s: it can't be reached: "):
        await sent(servers, A, "s", "x", b"{}", 30)
