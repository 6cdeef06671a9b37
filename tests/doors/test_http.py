"""What a request must be to reach a handler, and what the others are told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

import httpx2
import pytest

from broker.doors.http import App, Response, Route
from broker.doors.listen import Door
from broker.doors.socket import bind_operator_socket
from tests.doors.setting import MAX_BODY_BYTES, Pki, Routes, chunked, dial, get, opened, post

TOO_LARGE = b"x" * (MAX_BODY_BYTES + 1)

REFUSED = [
    pytest.param(get("/nowhere"), 404, id="unknown path"),
    pytest.param(get("/here/"), 404, id="trailing slash"),
    pytest.param(get("//here"), 404, id="double slash"),
    pytest.param(get("/HERE"), 404, id="path in capitals"),
    pytest.param(get("/%68ere"), 404, id="escaped path"),
    pytest.param(get("/echo"), 405, id="GET on a POST route"),
    pytest.param(post("/here"), 405, id="POST on a GET route"),
    pytest.param(get("/here").replace(b"GET", b"DELETE"), 405, id="DELETE"),
    pytest.param(get("/here").replace(b"GET", b"OPTIONS"), 405, id="OPTIONS"),
    pytest.param(get("/here", "Content-Length: 1") + b"x", 400, id="GET with a body"),
    pytest.param(get("/here", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400, id="GET with chunks"),
    pytest.param(post("/echo", content_type=""), 415, id="no content type"),
    pytest.param(post("/echo", content_type="text/plain"), 415, id="text"),
    pytest.param(post("/echo", content_type="application/x-www-form-urlencoded"), 415, id="form"),
    pytest.param(post("/echo", content_type="multipart/form-data; boundary=a"), 415, id="multipart"),
    pytest.param(post("/echo", content_type="application/json; charset=latin-1"), 415, id="other charset"),
    pytest.param(post("/echo", content_type="application/json; a=b; charset=utf-8"), 415, id="other parameter"),
    pytest.param(post("/echo", content_type="application/json, text/plain"), 415, id="two types in one"),
    pytest.param(post("/echo", content_type="application/jsonp"), 415, id="longer type"),
    pytest.param(post("/echo", b"{}", "Content-Type: text/plain"), 400, id="content type twice"),
    pytest.param(post("/echo", b"{}", "Content-Type: application/json"), 400, id="the same content type twice"),
    pytest.param(post("/echo", b"{}", "Content-Length: 2"), 400, id="content length twice"),
    pytest.param(get("/here", "Origin: https://evil.example"), 403, id="a page of another origin"),
    pytest.param(get("/here", "Origin: null"), 403, id="a page of no origin"),
    pytest.param(get("/here", "Origin: https://localhost"), 403, id="a page of the same name"),
    pytest.param(get("/here", "Host: localhost"), 400, id="host twice"),
    pytest.param(get("/here").replace(b"Host: localhost\r\n", b""), 400, id="no host"),
    pytest.param(get("/here").replace(b"localhost", b"evil.example"), 421, id="a rebound name"),
    pytest.param(get("/here").replace(b"localhost", b"localhost.evil.example"), 421, id="a name that starts alike"),
    pytest.param(get("/here").replace(b"localhost", b"localhost:1:2"), 421, id="not a port"),
    pytest.param(get("/here").replace(b"HTTP/1.1", b"HTTP/1.0"), 505, id="HTTP/1.0"),
    pytest.param(b"GET /here\r\n\r\n", 505, id="HTTP/0.9"),
    pytest.param(get("/here", "Expect: a miracle"), 417, id="another expectation"),
    pytest.param(post("/echo", TOO_LARGE), 413, id="declared too large"),
    pytest.param(
        chunked("/echo", b"%x\r\n%b\r\n0\r\n\r\n" % (len(TOO_LARGE), TOO_LARGE)),
        413,
        id="too large in chunks",
    ),
    pytest.param(get("/here?a=1&a=2"), 400, id="a query name twice"),
    pytest.param(get("/here?a"), 400, id="a query name alone"),
    pytest.param(get("/here?a=%ff"), 400, id="a query that is not UTF-8"),
    pytest.param(get("/here?" + "&".join(f"a{n}=1" for n in range(17))), 400, id="a long query"),
    pytest.param(get("/malformed"), 400, id="a handler finds it malformed"),
]


@pytest.mark.promise("P31", "P33")
@pytest.mark.parametrize(("raw", "status"), REFUSED)
async def test_a_request_that_does_not_fit_reaches_no_handler(raw: bytes, status: int) -> None:
    routes = Routes()
    async with opened(routes) as door, dial(door) as client:
        answer = await client.ask(raw)
    assert (answer.status, list(answer.json)) == (status, ["error"])
    assert routes.reached == []


ACCEPTED = [
    pytest.param(post("/echo", b'{"a":1}'), b'{"a":1}', id="plain"),
    pytest.param(post("/echo", b"", content_type="application/json; charset=utf-8"), b"", id="charset, no body"),
    pytest.param(post("/echo", content_type='Application/JSON;charset="UTF-8"'), b"{}", id="quoted charset"),
    pytest.param(post("/echo", TOO_LARGE[1:]), TOO_LARGE[1:], id="as large as it may be"),
    pytest.param(post("/echo").replace(b"localhost", b"LocalHost:8443"), b"{}", id="host with a port"),
    pytest.param(post("/echo", b"{}", "Accept: a", "Accept: b"), b"{}", id="a list header twice"),
    pytest.param(chunked("/echo", b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"), b"{}", id="chunks"),
]


@pytest.mark.parametrize(("raw", "body"), ACCEPTED)
async def test_a_request_that_fits_reaches_its_handler_whole(raw: bytes, body: bytes) -> None:
    async with opened(Routes()) as door, dial(door) as client:
        answer = await client.ask(raw)
    assert (answer.status, answer.body) == (200, body)


async def test_a_body_that_comes_byte_by_byte_is_whole() -> None:
    async with opened(Routes()) as door, dial(door) as client:
        for byte in post("/echo", b'{"slow":true}'):
            client.send(bytes([byte]))
            await client.writer.drain()
        assert (await client.answer()).json == {"slow": True}


async def test_the_query_is_decoded() -> None:
    async with opened(Routes()) as door, dial(door) as client:
        answer = await client.ask(get("/here?wait=30&after=2026-01-01T00%3A00%3A00Z&empty="))
    assert answer.json["query"] == {"wait": "30", "after": "2026-01-01T00:00:00Z", "empty": ""}


async def test_a_wrong_method_is_told_the_right_one() -> None:
    async with opened(Routes()) as door, dial(door) as client:
        assert (await client.ask(get("/echo"))).headers["allow"] == "POST"


@pytest.mark.promise("P6")
async def test_equal_answers_are_equal_to_the_byte_and_carry_no_other_header() -> None:
    async with opened(Routes()) as door, dial(door) as client:
        unknown = await client.ask(get("/nowhere"))
        miss = await client.ask(get("/miss"))
    assert unknown.raw == miss.raw
    assert set(miss.headers) == {"content-type", "content-length"}


async def test_an_unexpected_failure_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(Routes()) as door, dial(door) as client:
        with caplog.at_level(logging.ERROR, logger="lever.doors"):
            answer = await client.ask(get("/broken"))
    assert (answer.status, answer.json) == (500, {"error": "internal error"})
    assert "a secret cause" in caplog.text


async def test_an_answered_request_does_not_stop_the_next_one_on_its_connection() -> None:
    async with opened(Routes()) as door, dial(door) as client:
        for raw, status in ((post("/echo", TOO_LARGE), 413), (post("/nowhere"), 404), (post("/echo"), 200)):
            assert (await client.ask(raw)).status == status


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with opened(Routes()) as door, dial(door) as client:
        head, body = post("/echo", b'{"a":1}', "Expect: 100-continue").split(b"\r\n\r\n")
        assert (await client.ask(head + b"\r\n\r\n")).status == 100
        assert (await client.ask(body)).json == {"a": 1}


@pytest.mark.parametrize(("path", "body", "status"), [("/nowhere", b"{}", 404), ("/echo", TOO_LARGE, 413)])
async def test_a_client_that_asks_first_and_is_refused_sends_nothing(path: str, body: bytes, status: int) -> None:
    async with opened(Routes()) as door, dial(door) as client:
        head = post(path, body, "Expect: 100-continue")[: -len(body)]
        answer = await client.ask(head)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await client.end() == b""


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with opened(Routes()) as door, dial(door) as client:
        client.send(b"".join(post("/echo", b"%d" % n) for n in range(8)))
        assert [(await client.answer()).body for _ in range(8)] == [b"%d" % n for n in range(8)]


def test_two_routes_for_one_method_and_path_are_a_mistake() -> None:
    async def nobody(request: object) -> Response:
        return Response(200)

    with pytest.raises(ValueError, match="two routes for GET /a"):
        App([Route("GET", "/a", nobody), Route("GET", "/a", nobody)], ["localhost"])


async def test_a_connection_keeps_what_its_requests_share(pki: Pki) -> None:
    async with opened(Routes(), pki.server_context()) as door:
        async with dial(door, pki.client_context("worker-a")) as client:
            first, second = [(await client.ask(get("/here"))).json for _ in range(2)]
        async with dial(door, pki.client_context()) as other:
            third = (await other.ask(get("/here"))).json
    assert (first["count"], second["count"], third["count"]) == (1, 2, 1)
    assert first["der"] == second["der"] == pki.der("worker-a").hex()
    assert third["der"] == ""


async def test_a_stream_comes_piece_by_piece_and_ends(pki: Pki) -> None:
    routes = Routes()
    async with opened(routes, pki.server_context()) as door, dial(door, pki.client_context()) as client:
        answer = await client.ask(get("/stream"))
        assert answer.headers == {"content-type": "application/x-ndjson", "transfer-encoding": "chunked"}
        for line in (b"one\n", b"two\n"):
            routes.pieces.put_nowait(line)
            assert await client.chunk() == line
        routes.pieces.put_nowait(None)
        assert await client.chunk() == b""
        assert (await client.ask(get("/here"))).status == 200


async def test_a_stream_is_closed_when_its_reader_leaves() -> None:
    routes = Routes()
    async with opened(routes) as door, dial(door) as client:
        await client.ask(get("/stream"))
        client.leave()
        await asyncio.wait_for(routes.stream_closed.wait(), 20)


async def test_a_stream_is_closed_when_its_reader_leaves_with_another_request_behind_it() -> None:
    routes = Routes()
    async with opened(routes) as door, dial(door) as client:
        client.send(get("/stream") + get("/here"))
        await client.answer()
        client.leave()
        await asyncio.wait_for(routes.stream_closed.wait(), 20)
    assert routes.reached == []


@pytest.mark.promise("P33")
async def test_real_clients_speak_to_both_doors(pki: Pki, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    async with opened(Routes(), pki.server_context()) as door:
        base_url = f"https://localhost:{door.addresses[0][1]}"
        async with httpx2.AsyncClient(base_url=base_url, verify=pki.client_context("worker-a")) as client:
            assert (await client.post("/echo", json={"a": 1})).json() == {"a": 1}
            assert (await client.post("/echo", json={}, headers={"Origin": base_url})).status_code == 403
    operator = Door("operator", App(Routes().table(), ["operator"]), [bind_operator_socket(tmp_path / "s")])
    await operator.start()
    transport = httpx2.AsyncHTTPTransport(uds=str(tmp_path / "s"))
    async with httpx2.AsyncClient(base_url="http://operator", transport=transport) as client:
        assert (await client.get("/here")).json()["uid"] == os.getuid()
    await operator.close(5.0)


@pytest.mark.parametrize(("uids", "status"), [({os.getuid()}, 200), ({os.getuid() + 1}, 403), (set(), 403)])
async def test_a_user_who_is_not_listed_gets_nothing_over_the_socket(
    tmp_path: Path, uids: set[int], status: int
) -> None:
    tmp_path.chmod(0o700)
    routes = Routes()
    app = App(routes.table(), ["operator"], uids=uids)
    door = Door("operator", app, [bind_operator_socket(tmp_path / "s")])
    await door.start()
    async with dial(door) as client:
        answer = await client.ask(get("/here").replace(b"localhost", b"operator"))
    await door.close(5.0)
    assert answer.status == status
    assert len(routes.reached) == (status == 200)
    assert "uids" in json.dumps(answer.json) or status == 200
