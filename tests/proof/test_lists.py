"""What the operator is shown is the state of the turn that read it: nothing later, which may not be on the disk yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.doors.admin import AdminRoutes, Bundle, Watchers
from broker.doors.http import Response, Route
from broker.journal.create import create
from broker.journal.state import StateFolder
from broker.wire import envelope, policy
from broker.wire.envelope import Envelope
from broker.wire.names import Cn
from broker.wire.statement import LeaseAction
from tests.journal import setting
from tests.proof import tool_desk
from tests.proof.counter import pair
from tests.proof.life import Life
from tests.proof.tool_office import Office, Sending, defined, office
from tests.proof.watched_disk import WatchedDisk

Asking = Callable[[Office], Coroutine[Any, Any, Any]]
OTHER = policy.encode(policy.of(tool_desk.POLICY | {"name": "other"}))


class Desks(Office):
    """An office whose agents the operator looks at, too."""

    def routes(self) -> list[Route]:
        return [*super().routes(), *AdminRoutes(self.desk, Bundle("", "", 60), Watchers()).routes()]


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Office]:
    servers = Sending(tmp_path)
    tools = await defined(tmp_path)
    with StateFolder.create(tmp_path / "state", setting.DEMO) as folder:
        disk = WatchedDisk([folder.path, folder.journal, folder.payloads])
        create(folder, disk, setting.CA_DIGEST, setting.CREATED_AT)
        try:
            async with office(Life(folder, disk), servers, tools, "word") as made:
                yield Desks(made.life, made.story, servers, "word", tools, made.began)
        finally:
            await servers.stop()


CASES: list[tuple[str, Asking]] = [
    ("list", lambda at: at.says("d-1", at.write)),
    ("agent_list", lambda at: at.story.invite(Cn("worker-b"), "ticket 2")),
    ("policy_show", lambda at: at.signed("policy_apply", OTHER, scope="instance")),
    ("run_list", lambda at: at.signed("run_new", cn="worker-a")),
    ("request_list", lambda at: at.call("write")),
    ("lease_list", lambda at: at.says("lease-1", LeaseAction("mail", 90, 2))),
]


@pytest.mark.promise("P4")
@pytest.mark.parametrize(("op", "happens"), CASES, ids=[op for op, _ in CASES])
async def test_a_list_shows_nothing_that_was_decided_behind_it(at: Office, op: str, happens: Asking) -> None:
    async def shown(nonce: str) -> bytes:
        raw = envelope.encode(Envelope(setting.DEMO, op, {"nonce": nonce}, at.began))
        path = "/directive/list" if op == "list" else f"/admin/{op}"
        answer: Response = await at.post(path, **pair("envelope", raw))
        assert answer.status == 200, answer.body
        return answer.body

    before = await shown("before")
    durable, decided = asyncio.get_running_loop().create_future(), at.life.turn.book.records
    with patch.object(at.life.journal, "durable", lambda: durable):
        reading = asyncio.ensure_future(shown("while"))
        while at.life.turn.book.records == decided:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    await happens(at)
    assert await shown("after") != before, "the case shows nothing: what happened is not in this list"
    durable.set_result(None)
    assert await reading == before
