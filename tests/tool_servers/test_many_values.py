"""A message with more values than the SDK's types should see on the event loop ends its server, before they see it."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from broker.effects.tool_servers import Done, NotSent, Unknown
from broker.effects.tool_servers.events import Events
from broker.effects.tool_servers.link import Link, Passage
from broker.wire import strict_json
from tests.tool_servers.conftest import Make
from tests.tool_servers.setting import A, AServer, alive, ask, fake, looked, sent, until
from tests.tool_servers.test_http import EVENTS, at, misbehaving, says, whole

BOUND = 1_000_000
TYPED = "it wrote a message with more than 10000 values outside of structured content"
ALL = "it wrote a message with more than 131072 values"
RESULT = '{"jsonrpc":"2.0","id":ID,"result":%s}'
HOSTILE = [
    pytest.param(RESULT % '{"content":[MANY]}', "{}", 10_001, TYPED, id="wrong contents"),
    pytest.param(RESULT % '{"content":[MANY]}', "0", 200_000, ALL, id="more of them"),
    pytest.param(RESULT % '{"content":[MANY]}', '{"type":"text"}', 5_001, TYPED, id="contents without text"),
    pytest.param(RESULT % '{"content":[MANY]}', '{"type":"text","text":""}', 10_001, TYPED, id="good contents"),
    pytest.param(
        RESULT % '{"content":[{"type":"text","text":"","annotations":{"audience":[MANY]}}]}', "0", 10_001, TYPED,
        id="audience",
    ),
    pytest.param(RESULT % '{"content":[],"structuredContent":{"a":[MANY]}}', "[[]]", 70_000, ALL, id="structured"),
    pytest.param(
        '{"jsonrpc":"2.0","id":"x","method":"sampling/createMessage","params":{"maxTokens":1,"messages":[MANY]}}',
        "{}", 10_001, TYPED, id="request",
    ),
    pytest.param(
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":[MANY]}}', "{}", 10_001, TYPED, id="notice"
    ),
    pytest.param('{"jsonrpc":"2.0","id":{"a":[MANY]},"method":5}', "0", 10_001, TYPED, id="no message"),
]  # fmt: skip
HONEST = [
    pytest.param(RESULT % '{"content":[MANY]}', '{"type":"text","text":"a row, [{"}', 9_000, id="rows"),
    pytest.param(RESULT % '{"content":[],"structuredContent":{"numbers":[MANY]}}', "12.25", 50_000, id="numbers"),
]
BAD = b'{"jsonrpc":"2.0","method":"a","params":{"a":[' + b"0," * 10_000 + b"0]}}"
GOOD = b'{"jsonrpc":"2.0","method":"a","params":{"a":"' + b"[," * 10_000 + b'"}}'


def filled(line: str, item: str, times: int, id: int) -> str:
    return line.replace("MANY", ",".join([item] * times)).replace("ID", str(id))


@pytest.mark.promise("P23")
@pytest.mark.parametrize(("line", "item", "times", "why"), HOSTILE)
async def test_over_pipes_it_is_unknown_and_the_server_ends(
    make: Make, caplog: pytest.LogCaptureFixture, line: str, item: str, times: int, why: str
) -> None:
    servers = make({"s": AServer(max_output_bytes=BOUND)})
    pid = int(await ask(servers, "pid"))
    with caplog.at_level(logging.WARNING), pytest.raises(Unknown) as caught:
        await ask(servers, "many", line=line, item=item, times=times)
    assert caught.value.why == f"s: {why}"
    await until(lambda: servers.connections == 0)
    assert not alive(pid)
    assert [record.__dict__["why"] for record in caplog.records if record.msg == "a tool server failed"] == [why]


@pytest.mark.promise("P23")
@pytest.mark.parametrize("stream", [False, True], ids=["json", "events"])
@pytest.mark.parametrize(("line", "item", "times", "why"), HOSTILE)
async def test_over_http_it_is_unknown_and_the_session_ends(
    make: Make, caplog: pytest.LogCaptureFixture, line: str, item: str, times: int, why: str, stream: bool
) -> None:
    def raw(id: int) -> bytes:
        body = filled(line, item, times, id)
        return EVENTS + f"event: message\ndata: {body}\n\n".encode() if stream else whole(200, body)

    async with misbehaving(says(raw)) as url:
        servers = make({"s": at(url, max_output_bytes=BOUND)})
        with caplog.at_level(logging.WARNING), pytest.raises(Unknown) as caught:
            await sent(servers, A, "s", "x", b"{}", 30)
        assert caught.value.why == f"s: {why}"
        await until(lambda: servers.connections == 0)
        assert [record.__dict__["why"] for record in caplog.records if record.msg == "a tool server failed"] == [why]


async def test_many_requests_of_a_server_hold_no_more_than_one(make: Make) -> None:
    line = '{"jsonrpc":"2.0","id":"x","method":"roots/list","params":{"a":[MANY]}}\n' * 5
    servers = make({"s": AServer(max_output_bytes=BOUND)})
    with pytest.raises(Unknown, match=r"^s: its requests hold more than 10000 values$"):
        await ask(servers, "many", line=line, item="0", times=2_000)
    servers = make({"s": AServer(max_output_bytes=BOUND)})
    for _ in range(3):  # each call has the whole of it
        answer = RESULT % '{"content":[{"type":"text","text":"well"}]}'
        assert await ask(servers, "many", line=line + answer, item="0", times=1_000) == "well"


@pytest.mark.parametrize(("line", "item", "times"), HONEST)
async def test_an_honest_answer_comes_through(make: Make, line: str, item: str, times: int) -> None:
    def raw(id: int) -> bytes:
        return EVENTS + f"event: message\ndata: {filled(line, item, times, id)}\n\n".encode()

    told = json.loads(filled(line, item, times, 0))["result"]
    async with misbehaving(says(raw)) as url:
        servers = make({"s": AServer(max_output_bytes=BOUND), "web": at(url, max_output_bytes=BOUND)})
        words = json.dumps({"line": line, "item": item, "times": times}).encode()
        for outcome in (await sent(servers, A, "s", "many", words, 30), await sent(servers, A, "web", "x", b"{}", 30)):
            assert isinstance(outcome, Done)
            assert json.loads(outcome.result) == told
        await servers.stop()


async def test_a_greeting_has_the_same_bound(make: Make) -> None:
    servers = make({"s": fake("icons", max_output_bytes=BOUND)})
    with pytest.raises(NotSent, match=f"^s: {TYPED}$"):
        await looked(servers, None)


class Body(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


async def read(*chunks: bytes) -> tuple[list[bytes], str, str]:
    """The messages that the SDK takes from this stream, why no more comes, and why the session is lost."""
    link, passage = Link(), Passage()
    stream = Events(Body(*chunks), link, passage, BOUND, is_answer=False)
    request = httpx2.Request("GET", "http://127.0.0.1/")
    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream, request=request)
    found = [event.data.encode() async for event in httpx2.EventSource(response)]
    return found, passage.astray, link.lost


def pieces(raw: bytes) -> list[bytes]:
    """Byte by byte at its ends, where the lines are short."""
    return (
        [raw[n : n + 1] for n in range(100)] + [raw[100:-100]] + [raw[n : n + 1] for n in range(-100, -1)] + [raw[-1:]]
    )


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize(
    "fields",
    [
        [b"data: BAD"],
        [b"data:BAD"],
        [b': a quote " in a comment', b"data: BAD"],
        [b'id: "', b"event: message", b"data: BAD", b"retry: 1"],
        [b"data: {", b"data: BAD"],
    ],
    ids=["plain", "no space", "comment", "fields", "no JSON"],
)
async def test_however_an_event_is_written_it_is_judged_before_the_sdk_reads_it(
    fields: list[bytes], end: bytes
) -> None:
    for raw in (BAD, BAD.replace(b",", b"," + end + b"data:", 9)):
        lines = end.join(fields).replace(b"BAD", raw) + end
        event = b"data: 1" + end + end + lines
        for chunks in ([event + end], [event, end], pieces(event + end), [event]):
            found, astray, lost = await read(*chunks)
            assert found == [b"1"]
            assert bool(lost) == (chunks != [event])
            assert astray in (lost, "the connection was lost")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
async def test_a_good_stream_comes_as_it_was_sent(end: bytes) -> None:
    events = [b"data: " + GOOD, b": more", b"data:", b'data: {"a":', b"data: 1}", b"data: \xe2\x80\xa8"]
    raw = b"".join(event + end + (b"" if event.endswith(b":") else end) for event in events)
    wanted = [GOOD, b'\n{"a":\n1}', b"\xe2\x80\xa8"]
    for chunks in ([raw], pieces(raw)):
        assert await read(*chunks) == (wanted, "the connection was lost", "")


async def test_a_line_that_never_ends_is_not_kept() -> None:
    assert await read(*[b"x" * 1000] * 2000) == ([], "a line of it is longer than what a call may bring", "")


def test_the_count_stops_at_its_bound_and_sees_every_value() -> None:
    assert strict_json.counted({"a": [1, [2, {"b": None}]], "c": "[,,,]"}, 100) == 7
    assert strict_json.counted([[0] * 10, [0] * 10], 15) > 15
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert strict_json.counted(deep, 1000) == 1001
