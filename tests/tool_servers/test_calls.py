"""One call, and what comes of it: with a real process over real pipes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from broker.effects.tool_servers import Done, Failed, Holder, NotSent, Unknown
from broker.wire.catalogue import pin
from broker.wire.names import Cn
from broker.wire.strict_json import canonical, parse
from tests.fakes.tool_server import TOOLS
from tests.tool_servers.conftest import Make
from tests.tool_servers.setting import A, AServer, B, Watch, alive, ask, fake, looked, sent, until

FROZEN = [
    canonical({"a": 1, "b": {"A1": [None, True, False, {"z": None}], "B2": ""}, "c": []}),
    canonical({"most": 2**53 - 1, "least": 1 - 2**53, "tiny": 5e-324, "huge": 1.7976931348623157e308, "tenth": 0.1}),
    canonical({"e": 1e21, "minus": -0.5, "one": 1.0, "text": "1", "true": True}),
    canonical({"é": "\U0001f600\u2028", "marks": '"\\\b\u0001\u007f', "right to left": "\u202e"}),
    canonical({"z": 1, "a": 2, "\u20ac": 3, "10": 4, "9": 5, "\U0001f600": 6, "\ufb33": 7}),
    canonical({}),
]


@pytest.mark.promise("P36")
@pytest.mark.parametrize("frozen", FROZEN)
async def test_every_number_text_and_order_arrives_as_it_was_frozen(make: Make, frozen: bytes) -> None:
    servers = make({"s": AServer()})
    outcome = await sent(servers, A, "s", "echo", frozen, 30)
    assert isinstance(outcome, Done)
    arrived = json.loads(outcome.result)["content"][0]["text"]
    assert dict(dict(exactly(arrived))["params"])["arguments"] == exactly(frozen)
    assert canonical(parse(arrived.encode(), "line")["params"]["arguments"]) == frozen  # type: ignore[call-overload, index]


def exactly(raw: str | bytes) -> Any:
    """Objects as pairs, so that order counts; 1, 1.0 and true as the different things that they are."""
    return json.loads(
        raw,
        object_pairs_hook=tuple,
        parse_int=lambda digits: ("int", int(digits)),
        parse_float=lambda digits: ("float", float(digits)),
        parse_constant=lambda word: ("constant", word),
    )


@pytest.mark.parametrize(
    "bad", [b"", b"[]", b"{", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":9007199254740992}', b'\xff', b"{}" + b" " * 70000]
)  # fmt: skip
async def test_arguments_that_are_no_frozen_object_are_never_sent(make: Make, bad: bytes) -> None:
    servers = make({"s": AServer()})
    with pytest.raises(NotSent, match=r"^s: arguments: "):
        await servers.call(A, pin("s", {"name": "echo", "inputSchema": {"type": "object"}}), bad, 30)
    assert servers.connections == 0, "not even a process was started"


async def test_an_error_in_the_result_and_an_error_instead_of_one_are_failures(make: Make) -> None:
    servers = make({"s": AServer()})
    failed = await sent(servers, A, "s", "fails", b"{}", 30)
    assert isinstance(failed, Failed)
    assert failed.is_result
    assert json.loads(failed.error)["content"] == [{"type": "text", "text": "no such branch"}]
    refused = await sent(servers, A, "s", "refuses", b"{}", 30)
    assert refused == Failed(b'{"code":-32000,"message":"not today","data":{"why":"weather"}}', is_result=False)


@pytest.mark.promise("P23")
@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("dies", "it ended with exit status 3"),
        ("garbage", "it wrote a line to its standard output that is no message of the protocol"),
        ("endless", "it wrote more than 100000 bytes, which is what a call may bring"),
        ("chatter", "it wrote more than 100000 bytes, which is what a call may bring"),
        ("strange", "its answer is no JSON"),
        ("nonsense", "its answer is none of the protocol (ValidationError)"),
        ("maybe", "its answer is none of the protocol"),
        ("both", "it wrote a line to its standard output that is no message of the protocol"),
        ("unasked", "it wrote more than 100000 bytes, which is what a call may bring"),
    ],
)
async def test_after_sending_whatever_is_no_answer_is_unknown(make: Make, tool: str, why: str) -> None:
    servers = make({"s": AServer()})
    pid = int(await ask(servers, "pid"))
    with pytest.raises(Unknown) as caught:
        await sent(servers, A, "s", tool, b"{}", 30)
    assert caught.value.why == f"s: {why}"
    if tool not in ("strange", "nonsense", "maybe"):
        await until(lambda: not alive(pid))


async def test_an_answer_may_be_as_long_as_the_limit_and_no_longer(make: Make) -> None:
    servers = make({"s": AServer()})
    assert len(await ask(servers, "large", bytes=99_000)) == 99_000
    assert len(await ask(servers, "large", bytes=99_000)) == 99_000, "each call has the whole of it"
    with pytest.raises(Unknown, match="more than 100000 bytes"):
        await sent(servers, A, "s", "large", b'{"bytes":100000}', 30)


@pytest.mark.parametrize("tool", ["silent", "stuck", "progress"])
async def test_nothing_extends_the_deadline_and_the_next_call_gets_a_fresh_process(make: Make, tool: str) -> None:
    servers = make({"s": AServer()})
    pid = int(await ask(servers, "pid"))
    with pytest.raises(Unknown, match=r"^s: no answer came within 0\.[0-9]+ s"):
        await sent(servers, A, "s", tool, b"{}", 0.3)
    assert int(await ask(servers, "pid")) != pid
    await until(lambda: not alive(pid))


async def test_the_server_s_own_limit_holds_if_it_is_less(make: Make) -> None:
    servers = make({"s": AServer(timeout_s=2)})
    await sent(servers, A, "s", "pid", b"{}", 30)
    with pytest.raises(Unknown, match="no answer came"):
        await sent(servers, A, "s", "silent", b"{}", 3000)


async def test_a_call_that_outlives_a_time_out_of_another_is_finished(make: Make) -> None:
    """The process is given up only when nothing is in hand any more."""
    servers = make({"s": AServer()})
    await ask(servers, "pid")
    slow = asyncio.create_task(sent(servers, A, "s", "silent", b"{}", 1.0))
    with pytest.raises(Unknown):
        await sent(servers, A, "s", "silent", b"{}", 0.2)
    assert not slow.done()
    with pytest.raises(Unknown, match="no answer came within"):
        await slow


@pytest.mark.parametrize(("tool", "same"), [("silent", True), ("stuck", False)])
async def test_a_cancelled_call_leaves_the_rest_healthy(
    make: Make, monkeypatch: pytest.MonkeyPatch, tool: str, same: bool
) -> None:
    """A server that is sound keeps its process; one that hangs in the call is replaced before the next call."""
    monkeypatch.setattr("broker.effects.tool_servers.connection.DOUBT_S", 0.5)
    servers = make({"s": AServer()})
    pid = int(await ask(servers, "pid"))
    call = asyncio.create_task(sent(servers, A, "s", tool, b"{}", 30))
    await until(lambda: servers._current["s", A].in_hand == 1)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    again = asyncio.create_task(ask(servers, "pid"))
    assert await ask(servers, "pid", B)
    if same:
        assert int(await again) == pid
    else:
        with pytest.raises(NotSent, match="did not come back from a call that was cancelled"):
            await again
        await until(lambda: not alive(pid))


async def test_upstream_s_own_requests_are_refused(make: Make) -> None:
    answers = json.loads(await ask(make({"s": AServer()}), "asks"))
    assert [answer["error"]["code"] < 0 for answer in answers] == [True] * 3
    assert not any("result" in answer for answer in answers)


@pytest.mark.promise("P36")
async def test_a_server_that_speaks_only_the_newer_protocol(make: Make) -> None:
    servers = make({"s": fake("newer")})
    listing = await looked(servers)
    assert (len(listing.tools), listing.identity.name, listing.identity.version) == (len(TOOLS), "fake", "8")
    line = json.loads(await ask(servers, "echo", number=9007199254740991))
    assert line["params"]["arguments"] == {"number": 9007199254740991}
    asked = await sent(servers, A, "s", "asks", b"{}", 30)
    assert isinstance(asked, Failed)
    assert json.loads(asked.error)["message"] == "the tool asked for more input, which it does not get"
    assert not asked.is_result


async def test_many_calls_at_once_get_each_its_own_answer(make: Make) -> None:
    servers = make({"s": AServer()})
    found = await asyncio.gather(*(ask(servers, "echo", number=n) for n in range(100)))
    numbers = [json.loads(line)["params"]["arguments"]["number"] for line in found]
    assert numbers == list(range(100))
    assert servers.connections == 1


async def test_each_holder_has_a_process_of_its_own(make: Make) -> None:
    servers = make({"s": AServer(), "t": AServer()})
    again = Holder(Cn("worker-a"), 2)
    pids = {await ask(servers, "pid", holder, name) for holder in (A, B, again) for name in ("s", "t")}
    assert len(pids) == 6
    assert await ask(servers, "pid", A) in pids


async def test_a_server_that_is_not_configured_is_not_there(make: Make) -> None:
    servers = make({"s": AServer()})
    other = pin("other", {"name": "pid", "inputSchema": {"type": "object"}})
    for ask_it in (servers.call(A, other, b"{}", 1), servers.look(A, "other", 0, 0)):
        with pytest.raises(NotSent, match=r"^other: there is no such server$"):
            await ask_it


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (fake("exits"), "it ended with exit status 3"),
        (fake("old"), "its greeting is none of a version of the protocol that is known"),
        (AServer(command=("no-such-program-anywhere",)), "it can't be started: there is no such program"),
        (AServer(command=("true",)), "it ended with exit status 0"),
    ],
    ids=["exits", "old", "absent", "no server"],
)
async def test_what_does_not_start_was_never_asked(make: Make, watch: Watch, server: AServer, why: str) -> None:
    servers = make({"s": server})
    with pytest.raises(NotSent) as caught:
        await sent(servers, A, "s", "pid", b"{}", 30)
    assert caught.value.what == f"s: {why}", "none of the server's own words, which may hold a secret"
    await until(lambda: servers.connections == 0)
    with pytest.raises(NotSent) as caught:
        await sent(servers, A, "s", "pid", b"{}", 30)
    assert caught.value.what == f"s: {why}; it is tried again in 1 s"


async def test_a_server_that_never_greets_is_given_up_unasked(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.effects.tool_servers.connection.START_S", 0.3)
    servers = make({"s": fake("mute")})
    with pytest.raises(NotSent, match=r"it was not ready within 0.3 s"):
        await looked(servers)
