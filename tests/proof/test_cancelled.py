"""A caller that leaves at any await: its record is written all the same, and what it asked for happens once."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker import restart
from broker.doors.agent import AgentDoor, Rates
from broker.doors.http import Handler, Request, Response
from broker.doors.operator import Desk, DirectiveRoutes
from broker.journal.create import create
from broker.journal.state import StateFolder
from broker.rules.rates import TokenBucket
from broker.wire.names import NAMESPACE_DIRECTIVE, Instant
from broker.wire.records import (
    AgentEnrolled,
    CertificateRenewed,
    DirectiveAdmitted,
    DirectiveConsumed,
    DirectiveReported,
    DirectiveRevoked,
    SelftestPassed,
)
from broker.wire.times import SECOND
from broker.wire.verified import Standing, VerifiedBytes
from tests.fakes.fake_disk import at_most
from tests.journal import setting
from tests.proof.cast import BOTH, TERMS, A, caller, order, request, signed_statement
from tests.proof.life import Life, picture
from tests.proof.scenario import Story
from tests.proof.watched_disk import WatchedDisk

PLENTY = TokenBucket(1000, 1000)


class Leaving:
    """Runs a call like `await`, and has its task cancelled while it waits for the `at`-th time."""

    def __init__(self, call: Coroutine[Any, Any, Response], at: int) -> None:
        self._call, self._at = call, at
        self.waited = 0

    def __await__(self) -> Generator[Any, Any, Response]:
        steps = self._call.__await__()
        go_on: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                waits_for = go_on()
            except StopIteration as done:
                return cast(Response, done.value)
            self.waited += 1
            task = asyncio.current_task()
            if self.waited == self._at and task:
                task.cancel()
            try:
                yield waits_for
                go_on = partial(next, steps)
            except BaseException as error:
                go_on = partial(steps.throw, error)


@dataclass
class Scene:
    """A life with both doors, and in it an agent with directives."""

    life: Life
    story: Story

    @property
    def agent(self) -> AgentDoor:
        async def standing() -> Standing:
            await asyncio.sleep(0)  # as ssh-keygen takes its time
            return BOTH

        return AgentDoor(
            turn=self.life.turn,
            clock=lambda: self.story.at,
            steady=lambda: self.story.at,
            authority=cast(Any, SimpleNamespace(read_request=lambda pem: request(A, pem))),
            standing=standing,
            repeat_s=60,
            inbox=cast(Any, None),
            rates=Rates(PLENTY, PLENTY, PLENTY, PLENTY, PLENTY),
        )

    @property
    def operator(self) -> DirectiveRoutes:
        async def verify(raw: bytes, signature: bytes, namespace: str, now: Instant, /) -> VerifiedBytes:
            await asyncio.sleep(0)
            signed = (
                signed_statement("new", now)[0] if namespace == NAMESPACE_DIRECTIVE else order("list", now, "").verified
            )
            return VerifiedBytes(
                raw, signature, namespace, signed.fingerprint, signed.signer_digest, signed.allowed_digest
            )

        async def first_attempt(id: str, timeout_s: float, /) -> bool:
            await asyncio.sleep(0)
            return True

        desk = Desk(self.life.turn, lambda: self.story.at, verify)
        return DirectiveRoutes(desk, TERMS, first_attempt, cast(Any, None))

    async def post(self, path: str, **body: str) -> Response:
        """One request to the handler of this path, as the door makes it."""
        routes = {route.path: route.handler for route in (*self.agent.routes(), *self.operator.routes())}
        handler: Handler = routes[path]
        raw = json.dumps(body).encode()
        asked = SimpleNamespace(
            body=raw, connection={"caller": caller(A, 1)}, peer_uid=1000, client_certificate_der=b""
        )
        return await handler(cast(Request, asked))

    def made(self, kind: type) -> int:
        return sum(isinstance(record.fact, kind) for record in self.life.records)


def _pair(name: str, verified: VerifiedBytes) -> dict[str, str]:
    raw, signature = (base64.b64encode(part).decode() for part in (verified.raw, b"-----BEGIN SSH SIGNATURE-----"))
    return {name: raw, "signature": signature}


def _send(scene: Scene) -> Coroutine[Any, Any, Response]:
    return scene.post("/directive/send", **_pair("statement", signed_statement("new", setting.CREATED_AT)[0]))


def _revoke(scene: Scene) -> Coroutine[Any, Any, Response]:
    signed = order("revoke", scene.story.at, "")
    envelope = json.loads(signed.verified.raw) | {"params": {"id": "plain", "nonce": str(scene.story.at)}}
    raw = base64.b64encode(json.dumps(envelope).encode()).decode()
    return scene.post("/directive/revoke", **_pair("envelope", signed.verified) | {"envelope": raw})


@dataclass(frozen=True)
class Act:
    """What a caller asks, what comes of it in the journal, and what it hears when it asks again after that."""

    name: str
    ask: Callable[[Scene], Coroutine[Any, Any, Response]]
    makes: type
    again: int = 200


ACTS = [
    Act("consume", lambda s: s.post("/directive/consume", id="plain"), DirectiveConsumed, 404),
    Act("consume, with a key", lambda s: s.post("/directive/consume", id="plain", attempt="one"), DirectiveConsumed),
    Act("report", lambda s: s.post("/directive/report", id="done", outcome="done", note="yes"), DirectiveReported),
    Act("renew", lambda s: s.post("/renew", csr="key 2"), CertificateRenewed),
    Act("enrol", lambda s: s.post("/enrol", ticket="another", csr="key 3"), AgentEnrolled),
    Act("send", _send, DirectiveAdmitted, 409),
    Act("revoke", _revoke, DirectiveRevoked),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StateFolder]:
    with StateFolder.create(tmp_path / "state", setting.DEMO) as made:
        yield made


@asynccontextmanager
async def on_stage(folder: StateFolder) -> AsyncIterator[Scene]:
    disk = WatchedDisk([folder.path, folder.journal, folder.payloads])
    create(folder, disk, setting.CA_DIGEST, setting.CREATED_AT)
    life = Life(folder, disk)
    story = Story(life)
    async with life.session(story.at):
        await story.invite(A, "ticket")
        await story.enrol(A, "ticket", "key", generation=1)
        await story.admit("plain")
        await story.admit("done")
        await story.consume("done")
        await story.invite(A, "another")
        yield Scene(life, story)


@pytest.mark.promise("P3", "P4", "P14")
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
async def test_who_leaves_at_any_await_stops_nothing_and_gets_nothing_twice(folder: StateFolder, act: Act) -> None:
    unheard = 0
    for at in count(1):
        async with on_stage(folder) as scene:
            before, test = scene.made(act.makes), scene.made(SelftestPassed)
            leaving = Leaving(act.ask(scene), at)
            task, beside = asyncio.ensure_future(_awaited(leaving)), asyncio.create_task(scene.story.selftest())
            left = isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
            await beside
            await scene.life.journal.durable()
            written = scene.made(act.makes) - before
            assert scene.made(SelftestPassed) == test + 1
            assert left or task.result().status == 200
            _same_after_a_power_cut(folder, scene.life)
            unheard += left and written

            scene.story.at = Instant(scene.story.at + SECOND)
            again = await act.ask(scene)
            assert again.status == (act.again if written else 200)
            assert scene.made(act.makes) == before + 1, "once, whatever the caller heard"
            if not left:
                assert leaving.waited < at
                break
    assert unheard, "nobody ever left while the record was being written"


async def _awaited(call: Leaving) -> Response:
    return await call


def _same_after_a_power_cut(folder: StateFolder, life: Life) -> None:
    book, _ = restart.read(folder, life.disk.crash(at_most(0), names_kept=False))
    assert picture(book) == picture(life.turn.book)
