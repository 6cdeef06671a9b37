"""Clients that leave, and a door that closes in good order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from broker.doors.peer import Peer
from tests.doors.setting import LONG, PATIENT, PATIENT_S, SHORT, Pki, Routes, dial, get, opened, post


@pytest.mark.parametrize("behind", [b"", get("/here")])
@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_client_that_leaves_stops_no_work(
    pki: Pki, caplog: pytest.LogCaptureFixture, over_tls: bool, behind: bytes
) -> None:
    server, context = (pki.server_context(), pki.client_context("worker-a")) if over_tls else (None, None)
    routes = Routes()
    async with opened(routes, server, PATIENT) as door:
        async with dial(door, context) as client:
            client.send(get("/poll-then-work") + behind)
            await routes.entered.wait()
            routes.entered.clear()
        await asyncio.wait_for(routes.entered.wait(), PATIENT_S)  # the poll ended, because the client is gone
        routes.release.set()
        await asyncio.wait_for(routes.finished.wait(), PATIENT_S)
        await door.close(LONG)
    assert not routes.cancelled
    assert (routes.reached, caplog.text) == ([], "")


async def test_closing_ends_polls_and_streams_properly_and_lets_work_finish() -> None:
    routes, held = Routes(), Routes()
    async with opened(routes, None, PATIENT) as door, AsyncExitStack() as stack:
        poll, stream, idle, half = [await stack.enter_async_context(dial(door)) for _ in range(4)]
        poll.send(get("/poll"))
        await stream.ask(get("/stream"))
        await idle.ask(get("/here"))
        half.send(b"GET /he")
        await routes.entered.wait()
        await asyncio.wait_for(door.close(LONG), PATIENT_S)
        assert (await poll.answer()).json == {"pointers": []}
        assert await stream.chunk() == b""
        assert [await each.end() for each in (poll, stream, idle, half)] == [b""] * 4
        assert routes.stream_closed.is_set()
    async with opened(held, None, PATIENT) as door, dial(door) as client:
        client.send(post("/held", b'{"a":1}'))
        await held.entered.wait()
        port = door.addresses[0][1]
        closing = asyncio.create_task(door.close(LONG))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        held.release.set()
        await asyncio.wait_for(closing, PATIENT_S)
        answer = await client.answer()
        assert (answer.json, answer.headers["connection"]) == ({"a": 1}, "close")
    assert not held.cancelled


async def test_closing_cuts_what_lasts_longer_than_the_grace(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    routes = Routes()
    async with opened(routes, pki.server_context(), PATIENT) as door, AsyncExitStack() as stack:
        work = await stack.enter_async_context(dial(door, pki.client_context()))
        shaking = await stack.enter_async_context(dial(door))
        work.send(post("/held"))
        await routes.entered.wait()
        await asyncio.wait_for(door.close(SHORT), PATIENT_S)
        assert routes.cancelled
        assert door.connections == 0
        assert await shaking.end() == b""
        assert (await work.answer()).status == 503
    assert caplog.text == ""


@pytest.mark.parametrize("over_tls", [False, True])
async def test_closing_does_not_wait_for_a_client_that_does_not_read(pki: Pki, over_tls: bool) -> None:
    server, context = (pki.server_context(), pki.client_context()) if over_tls else (None, None)
    routes = Routes()
    async with opened(routes, server, PATIENT) as door, dial(door, context) as client:
        client.pause()
        client.send(get("/large") * 2)
        await routes.entered.wait()
        await asyncio.wait_for(door.close(SHORT), PATIENT_S)
        assert door.connections == 0


async def test_closing_waits_for_work_whose_client_has_left() -> None:
    routes = Routes()
    async with opened(routes, None, PATIENT) as door:
        async with dial(door) as client:
            client.send(get("/poll-then-work"))
            await routes.entered.wait()
            routes.entered.clear()
        await asyncio.wait_for(routes.entered.wait(), PATIENT_S)
        assert door.connections == 0
        closing = asyncio.create_task(door.close(LONG))
        routes.release.set()
        await asyncio.wait_for(closing, PATIENT_S)
    assert routes.finished.is_set()
    assert not routes.cancelled


async def test_a_poll_that_begins_while_the_door_closes_ends_at_once() -> None:
    routes = Routes()
    async with opened(routes, None, PATIENT) as door, dial(door) as client:
        client.send(get("/work-then-poll"))
        await routes.entered.wait()
        closing = asyncio.create_task(door.close(LONG))
        await asyncio.sleep(0)
        routes.release.set()
        await asyncio.wait_for(closing, PATIENT_S)
        assert (await client.answer()).status == 200


async def test_whoever_cancels_work_for_good_is_heard_even_while_its_client_leaves() -> None:
    peer = Peer()
    work = asyncio.create_task(peer.wait(asyncio.Event().wait()))
    await asyncio.sleep(0)
    peer.end()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
