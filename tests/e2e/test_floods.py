"""Floods through the real doors: whatever one caller does, another one's consume passes beside it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.e2e.flooding import (
    HOST,
    Crowd,
    Stall,
    agent_get,
    agent_line,
    agent_post,
    allow_descriptors,
    client_hello,
    consumes,
    flood,
    status,
)
from tests.rig import Agent, Rig

DESCRIPTORS = 4096
EACH = 170  # of six kinds: a thousand
ROOM, PLACES = 64, 6
CONSUME, ENROL = "/directive/consume", "/enrol"


@pytest.fixture(autouse=True, scope="module")
def _descriptors() -> None:
    allow_descriptors(DESCRIPTORS)


@pytest.fixture(scope="module")
def default_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A running instance without limits in its file: what an operator gets who changes nothing."""
    made = Rig.create(tmp_path_factory.mktemp("instance"), limits="").start()
    yield made
    made.close()


@pytest.fixture
def small_rig(tmp_path: Path) -> Iterator[Rig]:
    """A running instance that holds few connections."""
    made = Rig.create(tmp_path / "instance", limits=f"limits: {{max_connections: {ROOM}}}").start()
    yield made
    made.close()


def enrolled(rig: Rig, word: str) -> Agent:
    """An agent with a name that no other test has."""
    return rig.enrol(f"{word}-{uuid.uuid4().hex[:8]}")


def new_id() -> bytes:
    return json.dumps({"id": str(uuid.uuid4())}).encode()


def records(rig: Rig) -> int:
    """How many records the journal has."""
    with rig.line() as client:
        return int(client.get("/health").json()["records"])


def open_files(rig: Rig) -> int:
    """How many descriptors the daemon holds; 0 where the system does not show them."""
    assert rig.daemon
    shown = Path(f"/proc/{rig.daemon.pid}/fd")
    return len(list(shown.iterdir())) if shown.exists() else 0


def answers(rig: Rig, agent: Agent, requests: Callable[[], bytes]) -> Iterator[int]:
    """One request after another over one connection: the status of each answer."""
    with agent_line(rig, agent.context()) as line:
        while True:
            yield status(line.ask(requests()))


# --- silence ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P32", "P11")
async def test_a_thousand_stalled_connections_are_closed_and_a_consume_passes_beside_them(default_rig: Rig) -> None:
    rig = default_rig
    honest, stalling = enrolled(rig, "honest"), enrolled(rig, "stalling")
    stranger = Agent(rig, "stranger").context()
    before = open_files(rig)
    half_body = agent_post(CONSUME, new_id()[:9], length=47)
    stalls = [
        Stall("silent before the handshake", None),
        Stall("half a hello", None, client_hello(stranger)[:100]),
        Stall("silent after the handshake", stranger),
        Stall("half a header", stranger, f"POST {CONSUME} HTTP/1.1\r\nHost: {HOST}\r\nContent-".encode()),
        Stall("half a body without a certificate", stranger, half_body),
        Stall("half a body with a certificate", stalling.context(), half_body),
    ]
    async with Crowd(rig, again=True) as crowd:
        await asyncio.gather(*(crowd.gather(stall, EACH) for stall in stalls))
        assert crowd.held > 256, "the flood stands"
        for _ in range(3):
            assert await asyncio.to_thread(consumes, rig, honest)
        assert crowd.held > 256, "and still does"
        await crowd.leave()
        assert {stall.name for stall in stalls} == crowd.closed.keys()
    # A client sees the end of TLS before the daemon lets go of the socket: ask a few times, each a call apart.
    assert any(records(rig) and open_files(rig) <= before + 8 for _ in range(500))


@pytest.mark.promise("P11")
async def test_one_agent_with_every_connection_that_it_can_open(default_rig: Rig) -> None:
    rig = default_rig
    honest, greedy = enrolled(rig, "honest"), enrolled(rig, "greedy")
    before, context = open_files(rig), greedy.context()
    kinds = [Stall("silent", context), Stall("in a long poll", context, agent_get("/inbox?wait=30"))]
    async with Crowd(rig) as crowd:
        await asyncio.gather(*(crowd.gather(kind, 550) for kind in kinds))
        assert await asyncio.to_thread(consumes, rig, honest)
        assert open_files(rig) <= before + 384, "it holds a fraction of the door"
    assert await asyncio.to_thread(consumes, rig, greedy), "and is served again once it lets go"


@pytest.mark.promise("P11")
@pytest.mark.parametrize("sent", [b"", agent_get("/inbox?wait=30")], ids=["silent", "in a long poll"])
async def test_agents_that_fill_the_door_together_make_room_for_another(small_rig: Rig, sent: bytes) -> None:
    rig = small_rig
    greedy = [enrolled(rig, "greedy") for _ in range(3)]
    modest, newcomer = enrolled(rig, "modest"), enrolled(rig, "newcomer")
    polling = asyncio.create_task(asyncio.to_thread(modest.inbox, "?wait=30"))
    async with Crowd(rig, again=True) as crowd:
        for agent in greedy:
            await crowd.gather(Stall(agent.cn, agent.context(), sent), ROOM // 2)
        assert await asyncio.to_thread(consumes, rig, newcomer)
        id = rig.send(modest.cn)
        assert await polling == [id], "who holds one connection keeps it"


# --- haste ------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("P11")
@pytest.mark.parametrize("certified", [False, True], ids=["without a certificate", "with one"])
def test_a_flood_of_handshakes(default_rig: Rig, certified: bool) -> None:
    rig = default_rig
    honest, hasty = enrolled(rig, "honest"), enrolled(rig, "hasty")
    context = hasty.context() if certified else Agent(rig, "stranger").context()

    def handshakes() -> Iterator[str]:
        while True:
            with agent_line(rig, context):
                yield "made"

    with flood(handshakes, threads=8) as tally:
        tally.more(50)
        for _ in range(5):
            assert consumes(rig, honest)
            tally.more(1)


@pytest.mark.promise("P11", "P15")
def test_a_flood_of_enrolments_with_unknown_tickets(default_rig: Rig) -> None:
    rig = default_rig
    honest, stranger = enrolled(rig, "honest"), Agent(rig, "stranger")
    csr = stranger.csr()

    def guess() -> bytes:
        return agent_post(ENROL, json.dumps({"ticket": uuid.uuid4().hex, "csr": csr}).encode())

    with flood(lambda: answers(rig, stranger, guess)) as tally:
        tally.until(429)
        for _ in range(3):
            late = enrolled(rig, "late")
            assert consumes(rig, late)
            tally.more(1)
        assert consumes(rig, honest)
    assert set(tally.got) <= {403, 429}


@pytest.mark.promise("P11")
def test_a_flood_of_misses_with_ever_new_ids(default_rig: Rig) -> None:
    rig = default_rig
    honest, guessing = enrolled(rig, "honest"), enrolled(rig, "guessing")
    before = records(rig)
    with flood(lambda: answers(rig, guessing, lambda: agent_post(CONSUME, new_id()))) as tally:
        tally.until(429)
        assert consumes(rig, honest)
        tally.more(2000)
        assert consumes(rig, honest)
    assert set(tally.got) == {404, 429}
    assert tally.got[404] <= 60, "its rate, and what it gained meanwhile"
    assert records(rig) <= before + 60, "what it cannot do fills no disk"


@pytest.mark.promise("P11")
def test_misses_with_ever_new_ids_within_the_rate_cost_few_records(own_rig: Rig) -> None:
    rig = own_rig
    guessing = enrolled(rig, "guessing")
    before = records(rig)
    with flood(lambda: answers(rig, guessing, lambda: agent_post(CONSUME, new_id()))) as tally:
        tally.more(2000)
    assert set(tally.got) == {404}
    assert records(rig) <= before + 40


@pytest.mark.promise("P11")
@pytest.mark.parametrize(("path", "answer"), [(CONSUME, 403), ("/directive/check", 403), ("/renew", 403), (ENROL, 429)])
def test_a_flood_of_whoever_has_no_certificate(default_rig: Rig, path: str, answer: int) -> None:
    rig = default_rig
    honest, stranger = enrolled(rig, "honest"), Agent(rig, "stranger")
    before = records(rig)
    with flood(lambda: answers(rig, stranger, lambda: agent_post(path, new_id()))) as tally:
        tally.more(1000)
        assert consumes(rig, honest)
        tally.more(1)
    assert set(tally.got) <= {403, answer}
    assert records(rig) <= before + 60


@pytest.mark.promise("P11")
def test_a_flood_of_looks_into_the_inbox_has_a_rate_of_its_own(default_rig: Rig) -> None:
    rig = default_rig
    honest, restless = enrolled(rig, "honest"), enrolled(rig, "restless")
    with flood(lambda: answers(rig, restless, lambda: agent_get("/inbox"))) as tally:
        tally.until(429)
        assert consumes(rig, honest)
        assert consumes(rig, restless), "its own consume has another rate"
        tally.more(1)
    assert set(tally.got) == {200, 429}
    assert tally.got[200] <= 240, "its rate, and what it gained meanwhile"


CALL: dict[str, object] = {"name": "files__read", "arguments": {}}
MESSAGE: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}


@pytest.mark.promise("P11")
def test_tool_calls_have_the_rate_that_is_configured_whichever_way_they_come(tmp_path: Path) -> None:
    with closing(Rig.create(tmp_path / "instance", limits="limits: {calls_per_minute: 3}")) as rig:
        rig.start()
        honest = enrolled(rig, "honest")
        for path, call, beyond in (
            ("/tools/call", CALL, b"rate limited"),
            ("/mcp", MESSAGE, b"too many calls"),
        ):
            eager, before, told = enrolled(rig, "eager"), records(rig), list[bytes]()
            while not told or beyond not in told[-1]:
                assert len(told) < 30, f"{path}: ten times its rate"
                told.append(eager.post(path, call).content)
            assert all(b"unknown_tool" in answer for answer in told[:-1]), "each within it is judged"
            assert len(told) > 3
            assert eager.get("/tools").status_code == 429, "a look costs as much"
            assert consumes(rig, eager), "its own consume has another rate"
            assert consumes(rig, honest)
            assert records(rig) <= before + 40, "what it cannot do fills no disk"


# --- an identity that was replaced ------------------------------------------------------------------------------------

PREDECESSORS = {
    "consume": lambda old: agent_post(CONSUME, new_id()),
    "inbox": lambda old: agent_get("/inbox"),
    "renew": lambda old: agent_post("/renew", json.dumps({"csr": old.csr()}).encode()),
}


@pytest.mark.promise("P11", "P2")
@pytest.mark.parametrize("call", PREDECESSORS)
def test_a_predecessors_flood_uses_up_nothing_of_its_successors(default_rig: Rig, call: str) -> None:
    """An agent is enrolled anew because somebody else may have its old identity."""
    rig = default_rig
    old = enrolled(rig, "reborn")
    new = rig.enrol(old.cn)
    with flood(lambda: answers(rig, old, lambda: PREDECESSORS[call](old))) as tally:
        tally.more(300)
        assert consumes(rig, new, 2)
        assert new.get("/inbox").status_code == 200
        assert new.renew().status_code == 200
    assert set(tally.got) <= {403, 404, 429}


@pytest.mark.promise("P11", "P2")
async def test_a_predecessors_connections_leave_room_for_its_successor(default_rig: Rig) -> None:
    rig = default_rig
    old = enrolled(rig, "reborn")
    new = rig.enrol(old.cn)
    async with Crowd(rig, again=True) as crowd:
        await crowd.gather(Stall("idle", old.context(), agent_get("/inbox")), 300)
        assert await asyncio.to_thread(consumes, rig, new, 2)


@pytest.mark.promise("P11", "P15")
def test_a_flood_with_a_spent_ticket_keeps_nobody_from_enrolling_anew(default_rig: Rig) -> None:
    rig = default_rig
    agent = Agent(rig, f"reborn-{uuid.uuid4().hex[:8]}")
    ticket = rig.invite(agent.cn)
    assert agent.redeem(ticket).status_code == 200
    spent = agent_post(ENROL, json.dumps({"ticket": ticket, "csr": Agent(rig, agent.cn).csr()}).encode())
    with flood(lambda: answers(rig, agent, lambda: spent)) as tally:
        tally.more(100)
        assert consumes(rig, rig.enrol(agent.cn), 2)


@pytest.mark.promise("P11", "P16")
@pytest.mark.parametrize("ending", ["enrolled anew", "revoked"])
async def test_certificates_that_stand_no_longer_keep_nobody_from_enrolling(small_rig: Rig, ending: str) -> None:
    """Each generation's certificate holds as many places as it may; TLS lets them in for the rest of their day."""
    rig = small_rig
    generations = [enrolled(rig, "many")]
    for _ in range(4):
        generations.append(rig.enrol(generations[0].cn))
    if ending == "revoked":
        rig.admin("/admin/agent_revoke", "agent_revoke", cn=generations[0].cn)
    async with Crowd(rig, again=True) as crowd:
        for one in generations:
            await crowd.gather(Stall("idle", one.context(), agent_get("/inbox")), ROOM // 4)
        newcomer = await asyncio.to_thread(enrolled, rig, "newcomer")
        assert await asyncio.to_thread(consumes, rig, newcomer)


@pytest.mark.promise("P11", "P16")
@pytest.mark.parametrize("ending", ["enrolled anew", "revoked"])
async def test_the_only_connection_of_who_stands_no_longer_makes_room(tmp_path: Path, ending: str) -> None:
    """Of an agent it would not: as many old certificates as there are places would keep everybody out."""
    with closing(Rig.create(tmp_path / "instance", limits=f"limits: {{max_connections: {PLACES}}}")) as rig:
        rig.start()
        generations = [enrolled(rig, "many")]
        while len(generations) <= PLACES:
            generations.append(rig.enrol(generations[0].cn))
        if ending == "revoked":
            rig.admin("/admin/agent_revoke", "agent_revoke", cn=generations[0].cn)
        async with Crowd(rig) as crowd:
            for one in generations[:PLACES]:
                await crowd.gather(Stall("idle", one.context(), agent_get("/inbox")), 1)
            newcomer = await asyncio.to_thread(enrolled, rig, "newcomer")
            assert await asyncio.to_thread(consumes, rig, newcomer)


@pytest.mark.promise("P11", "P15")
async def test_agents_that_fill_the_door_leave_places_to_enrol(small_rig: Rig) -> None:
    rig = small_rig
    agents = [enrolled(rig, "full") for _ in range(4)]
    async with Crowd(rig, again=True) as crowd:
        for one in agents:
            await crowd.gather(Stall("idle", one.context(), agent_get("/inbox")), ROOM // 4)
        newcomer = await asyncio.to_thread(enrolled, rig, "newcomer")
        assert await asyncio.to_thread(consumes, rig, newcomer)


@pytest.mark.promise("P11", "P32")
def test_no_client_gets_far_ahead_of_the_daemon(default_rig: Rig) -> None:
    """What lies ready is decrypted in one go, so a megabyte of small records would stop the door for everybody."""
    rig = default_rig
    assert rig.daemon
    agent = enrolled(rig, "ahead")
    with agent_line(rig, agent.context()) as line:
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        line.socket.setblocking(False)
        os.kill(rig.daemon.pid, signal.SIGSTOP)
        try:
            sent = 0
            with suppress(ssl.SSLWantWriteError, BlockingIOError):
                while sent < 1 << 20:
                    sent += line.socket.send(bytes(1024))
        finally:
            os.kill(rig.daemon.pid, signal.SIGCONT)
    assert sent < 3 << 14
