"""Connections that misbehave: too slow, too large, too many, or no HTTP at all."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest

from broker.doors.socket import bind_tcp
from broker.errors import Fatal
from tests.doors.setting import (
    LARGE_BYTES,
    LONG,
    PATIENT,
    PATIENT_S,
    SHORT,
    Client,
    Pki,
    Routes,
    chunked,
    dial,
    get,
    opened,
    post,
)

# deadlines: each test shortens one and leaves the others long, then reads until the door closes the connection

HALF_HELLO = bytes.fromhex("16030100f8010000f4030300")

SILENT = [
    pytest.param("handshake_s", False, b"", b"", id="a silent socket"),
    pytest.param("handshake_s", False, HALF_HELLO, b"", id="half a hello"),
    pytest.param("first_s", True, b"", b"", id="a silent TLS connection"),
    pytest.param("first_s", True, b"\r\n\r\n", b"", id="empty lines"),
    pytest.param("header_s", True, b"POST /echo HT", b"408", id="half a first line"),
    pytest.param("header_s", True, post("/echo")[:-10], b"408", id="half a head"),
    pytest.param("body_s", True, post("/echo", b'{"a":1}')[:-1], b"408", id="half a body"),
    pytest.param("body_s", True, post("/nowhere", b'{"a":1}')[:-1], b"404", id="half a body that nobody wants"),
    pytest.param("idle_s", True, post("/echo"), b"200", id="silence after a request"),
    pytest.param("idle_s", True, post("/echo") + b"\r\n", b"200", id="an empty line after a request"),
    pytest.param("header_s", True, get("/here") + b"GET /he", b"200", id="half a second request"),
]


@pytest.mark.promise("P32")
@pytest.mark.parametrize(("limit", "over_tls", "sent", "answered"), SILENT)
async def test_whoever_keeps_the_door_waiting_is_closed(
    pki: Pki, limit: str, over_tls: bool, sent: bytes, answered: bytes
) -> None:
    limits = replace(PATIENT, **{limit: SHORT})
    context = pki.client_context() if over_tls else None
    async with opened(Routes(), pki.server_context(), limits) as door, dial(door, context) as client:
        client.send(sent)
        received = await client.end()
    assert received[9:12] == answered


@pytest.mark.promise("P32")
@pytest.mark.parametrize(
    ("limit", "head", "drop", "answered"),
    [
        ("header_s", b"GET /here HTTP/1.1\r\nHost: localhost\r\nx: ", b"x", b"408"),
        ("body_s", post("/echo", b"x" * 999)[:-999], b"x", b"408"),
        ("body_s", post("/nowhere", b"x" * 999)[:-999], b"x", b"404"),
    ],
)
async def test_a_deadline_is_not_put_off_by_single_bytes(limit: str, head: bytes, drop: bytes, answered: bytes) -> None:
    async with opened(Routes(), None, replace(PATIENT, **{limit: 2 * SHORT})) as door, dial(door) as client:
        client.send(head)
        received = b""
        for _ in range(900):  # far longer than the deadline, far shorter than what the sizes allow
            client.send(drop)
            try:
                async with asyncio.timeout(0.02):
                    piece = await client.reader.read(1000)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            if not piece:
                break
            received += piece
        else:
            pytest.fail("still open")
    assert received[9:12] == answered


@pytest.mark.promise("P32")
@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize(("limit", "extra"), [("write_s", "x: y"), ("close_s", "Connection: close")])
async def test_whoever_does_not_read_is_closed(pki: Pki, over_tls: bool, limit: str, extra: str) -> None:
    server, context = (pki.server_context(), pki.client_context()) if over_tls else (None, None)
    routes, limits = Routes(), replace(PATIENT, **{limit: SHORT, "first_s": 3 * SHORT})
    async with opened(routes, server, limits) as door, dial(door, context) as client:
        client.pause()
        client.send(get("/large", extra) * 2)
        await routes.entered.wait()
        async with dial(door, context) as silent:
            await silent.end()  # its deadline comes after the other's
        client.resume()
        assert len(await client.end()) < 2 * LARGE_BYTES


@pytest.mark.parametrize("limit", ["header_s", "body_s", "idle_s", "write_s", "close_s"])
async def test_work_may_last_longer_than_every_deadline(limit: str) -> None:
    routes = Routes()
    limits = replace(PATIENT, **{limit: SHORT, "first_s": 3 * SHORT})
    async with opened(routes, None, limits) as door, dial(door) as client:
        client.send(post("/held", b'{"a":1}'))
        await routes.entered.wait()
        async with dial(door) as silent:
            await silent.end()  # its deadline comes after the other's would
        routes.release.set()
        assert (await client.answer()).json == {"a": 1}


async def test_an_unwanted_body_that_came_in_time_leaves_the_connection_open() -> None:
    limits = replace(PATIENT, body_s=SHORT, first_s=3 * SHORT)
    async with opened(Routes(), None, limits) as door, dial(door) as client:
        assert (await client.ask(post("/nowhere")[:-2])).status == 404
        client.send(b"{}")
        async with dial(door) as silent:
            await silent.end()  # its deadline comes after the other's would
        assert (await client.ask(get("/here"))).status == 200


@pytest.mark.promise("P11", "P32")
async def test_a_flood_of_silent_connections_keeps_nobody_out(pki: Pki) -> None:
    limits = replace(PATIENT, max_handshakes=8, max_connections=4)
    async with opened(Routes(), pki.server_context(), limits) as door, AsyncExitStack() as stack:
        kept = await stack.enter_async_context(dial(door, pki.client_context("worker-a")))
        flood = [await stack.enter_async_context(dial(door)) for _ in range(100)]
        flood += [await stack.enter_async_context(dial(door, pki.client_context())) for _ in range(20)]
        newcomer = await stack.enter_async_context(dial(door, pki.client_context("worker-b")))
        assert (await newcomer.ask(get("/here"))).status == 200
        assert (await kept.ask(get("/here"))).status == 200
        await asyncio.gather(*(silent.end() for silent in flood[:90]))
        assert door.connections <= 4


async def test_connections_that_come_all_at_once_are_closed_or_served(pki: Pki) -> None:
    limits = replace(PATIENT, max_handshakes=1)
    async with opened(Routes(), pki.server_context(), limits) as door:
        burst = [socket.create_connection(door.addresses[0]) for _ in range(5)]  # before the door gets to run
        async with dial(door, pki.client_context("worker-a")) as client:
            assert (await client.ask(get("/here"))).status == 200
        for each in burst:
            with each:
                each.setblocking(False)
                assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(each, 1), PATIENT_S) == b""


async def test_newcomers_at_the_same_moment_push_out_one_each() -> None:
    limits = replace(PATIENT, max_connections=3, idle_s=LONG / 2)  # so whoever idles is nearest to its deadline
    async with opened(Routes(), None, limits) as door, AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(dial(door)) for _ in range(3)]
        for client in idle:
            assert (await client.ask(get("/here"))).status == 200
        burst = [stack.enter_context(socket.create_connection(door.addresses[0])) for _ in range(3)]
        assert [await each.end() for each in idle] == [b""] * 3
        assert (door.connections, len(burst)) == (3, 3)


async def test_a_full_door_closes_newcomers_and_keeps_who_is_known(pki: Pki) -> None:
    limits = replace(PATIENT, max_connections=2)
    async with opened(Routes(), pki.server_context(), limits) as door, AsyncExitStack() as stack:
        known = [await stack.enter_async_context(dial(door, pki.client_context(cn))) for cn in ("a", "b")]
        for client in known:
            assert (await client.ask(get("/here"))).status == 200
        for cn in (None, "c"):
            async with dial(door, pki.client_context(cn)) as refused:
                assert await refused.end() == b""
        for client in known:
            assert (await client.ask(get("/here"))).status == 200


async def test_an_agent_that_holds_most_makes_room_for_another_agent_but_for_no_stranger(pki: Pki) -> None:
    limits = replace(PATIENT, max_connections=3)
    async with opened(Routes(), pki.server_context(), limits) as door, AsyncExitStack() as stack:
        modest = await stack.enter_async_context(dial(door, pki.client_context("modest")))
        assert (await modest.ask(get("/here"))).status == 200
        greedy = [await stack.enter_async_context(dial(door, pki.client_context("greedy"))) for _ in range(2)]
        for client in greedy:
            assert (await client.ask(get("/here"))).status == 200
        async with dial(door, pki.client_context(None)) as stranger:
            assert await stranger.end() == b""
        newcomer = await stack.enter_async_context(dial(door, pki.client_context("newcomer")))
        assert (await newcomer.ask(get("/here"))).status == 200
        ends = {asyncio.create_task(client.end()): client for client in greedy}
        (ended,), _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert await ended == b""
        for task in ends:
            task.cancel()
        (kept,) = (client for task, client in ends.items() if task is not ended)
        for client in (modest, newcomer, kept):
            assert (await client.ask(get("/here"))).status == 200


async def test_one_agent_does_not_take_every_place(pki: Pki) -> None:
    limits = replace(PATIENT, max_connections_per_agent=2)
    async with opened(Routes(), pki.server_context(), limits) as door, AsyncExitStack() as stack:
        for _ in range(2):
            client = await stack.enter_async_context(dial(door, pki.client_context("greedy")))
            assert (await client.ask(get("/here"))).status == 200
        async with dial(door, pki.client_context("greedy")) as refused:
            assert await refused.end() == b""
        async with dial(door, pki.client_context("modest")) as other:
            assert (await other.ask(get("/here"))).status == 200


DESCRIPTORS = """
import asyncio, resource, sys, uvloop
from broker.doors.listen import Door, Limits
from broker.doors.socket import bind_tcp
from tests.doors.setting import Routes
from broker.doors.http import App
async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
    door = Door("test", App(Routes().table(), ["localhost"]), bind_tcp("127.0.0.1", 0))
    await door.start()
    print(door.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await door.close(0.0)
uvloop.run(main())
"""


async def test_a_door_without_descriptors_works_again_when_it_has_some() -> None:
    argv = [sys.executable, "-W", "error", "-c", DESCRIPTORS]
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(*argv, cwd=root, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
    for _, writer in crowd[:59]:
        writer.transport.abort()
    last = Client(*crowd[59])
    assert (await last.ask(get("/here"))).status == 200
    last.leave()
    _, words = await process.communicate(b"")
    assert process.returncode == 0
    assert b"cannot accept: [Errno 24]" in words
    assert b"Traceback" not in words


# sizes and syntax

STEP = 4096


@pytest.mark.promise("P32")
@pytest.mark.parametrize("step", [STEP, 1 << 20])
async def test_a_head_without_end_is_refused(step: int) -> None:
    async with opened(Routes(), None, replace(PATIENT, close_s=SHORT)) as door, dial(door) as client:
        endless = get("/here", "x: " + "y" * 200_000)[:-4]
        for start in range(0, len(endless), step):
            client.send(endless[start : start + step])
        assert (await client.end())[9:12] in (b"431", b"")  # a client that goes on sending may miss its answer


@pytest.mark.parametrize(("size", "status"), [(16384, 200), (16385, 431)])
async def test_a_head_is_as_large_as_it_may_be(size: int, status: int) -> None:
    routes = Routes()
    used = len("/here") + len("HostXXlocalhostXX") + len("xXXXX")
    async with opened(routes) as door, dial(door) as client:
        assert (await client.ask(get("/here", "x: " + "y" * (size - used)))).status == status
    assert len(routes.reached) == (status == 200)


@pytest.mark.promise("P32")
async def test_a_body_without_end_is_cut_off() -> None:
    limits = replace(PATIENT, max_message_bytes=100_000, close_s=SHORT)
    async with opened(Routes(), None, limits) as door, dial(door) as client:
        answer = await client.ask(chunked("/echo", b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\nx\r\n"))
        assert answer.status == 413
        try:
            for _ in range(200):
                client.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
                await client.writer.drain()
        except ConnectionError:
            pass
        assert await client.end() == b""


MALFORMED = [
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", id="TLS on a plain socket"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
    pytest.param(b"GET /here HTTP/9.9\r\nHost: localhost\r\n\r\n", id="another version"),
    pytest.param(b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", id="CONNECT"),
    pytest.param(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", id="OPTIONS *"),
    pytest.param(get("http://localhost/here"), id="a whole URL as the target"),
    pytest.param(get("/h\xe9re").decode().encode("latin-1"), id="a path that is not ASCII"),
    pytest.param(get("/here", "Connection: Upgrade", "Upgrade: websocket"), id="websocket"),
    pytest.param(get("/here", "Connection: Upgrade", "Upgrade: h2c"), id="h2c"),
    pytest.param(get("/here", "x y: 1"), id="a space in a header's name"),
    pytest.param(get("/here", "x: a\x00b"), id="a NUL in a header"),
    pytest.param(get("/here", " folded"), id="a folded header"),
    pytest.param(get("/here").replace(b"\r\n", b"\n"), id="bare line feeds"),
    pytest.param(post("/echo", b"{}", "Content-Length: 3"), id="two lengths"),
    pytest.param(post("/echo", b"{}", "Transfer-Encoding: chunked"), id="length and chunks"),
    pytest.param(post("/echo").replace(b"Length: 2", b"Length: -2"), id="a negative length"),
    pytest.param(post("/echo").replace(b"Length: 2", b"Length: 0x2"), id="a hexadecimal length"),
    pytest.param(chunked("/echo", b"zz\r\n{}\r\n0\r\n\r\n"), id="a chunk's size that is none"),
    pytest.param(chunked("/echo", b"3\r\n{}\r\n0\r\n\r\n"), id="a chunk that is shorter than it says"),
    pytest.param(chunked("/echo", b"2\r\n{}\r\n0\r\nx-trailer: 1\r\n\r\n"), id="a trailer"),
    pytest.param(chunked("/echo", b"").replace(b"chunked", b"gzip, identity"), id="an unknown encoding"),
]


@pytest.mark.promise("P31")
@pytest.mark.parametrize("raw", MALFORMED)
async def test_what_is_not_plain_http_is_refused_and_closed(raw: bytes) -> None:
    routes = Routes()
    async with opened(routes, None, PATIENT) as door, dial(door) as client:
        client.send(raw + get("/here"))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert await client.end() == b""
    assert routes.reached == []


async def test_a_request_at_work_is_answered_before_the_nonsense_behind_it_closes_the_connection() -> None:
    async with opened(Routes(), None, PATIENT) as door, dial(door) as client:
        client.send(post("/echo", b'{"a":1}') + b"nonsense\r\n\r\n" + post("/echo"))
        assert (await client.answer()).json == {"a": 1}
        assert await client.end() == b""


async def test_too_many_pipelined_requests_close_the_connection_after_the_one_at_work() -> None:
    routes = Routes()
    async with opened(routes, None, replace(PATIENT, max_pipelined=4)) as door, dial(door) as client:
        client.send(post("/echo") + get("/here") * 5)
        assert (await client.answer()).status == 200
        assert await client.end() == b""
    assert routes.reached == ["echo"]


def test_an_address_in_use_is_named() -> None:
    [listener] = bind_tcp("127.0.0.1", 0)
    with listener:
        listener.listen()
        port, before = listener.getsockname()[1], len(os.listdir("/dev/fd"))
        with pytest.raises(Fatal, match=f"127.0.0.1:{port}: Address already in use") as caught:
            bind_tcp("127.0.0.1", port)
        assert len(os.listdir("/dev/fd")) == before
    assert caught.value.hint == "another broker? lever broker status; else see `listen` in lever.yaml"


def test_a_name_that_does_not_exist_is_named() -> None:
    with pytest.raises(Fatal, match=r"nowhere\.invalid:1"):
        bind_tcp("nowhere.invalid", 1)
