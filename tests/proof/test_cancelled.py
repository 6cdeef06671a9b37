"""A caller that leaves at any await: its record is written all the same, and what it asked for happens once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker import restart
from broker.doors.http import Response
from broker.journal.create import create
from broker.journal.state import StateFolder
from broker.wire.names import Instant
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
from tests.fakes.fake_disk import at_most
from tests.journal import setting
from tests.proof.cast import A, order, signed_statement
from tests.proof.counter import Counter, pair
from tests.proof.leaving import Leaving
from tests.proof.life import Life, picture
from tests.proof.scenario import Story
from tests.proof.watched_disk import WatchedDisk


def _send(at: Counter) -> Coroutine[Any, Any, Response]:
    return at.post("/directive/send", **pair("statement", signed_statement("new", setting.CREATED_AT)[0].raw))


def _revoke(at: Counter) -> Coroutine[Any, Any, Response]:
    signed = order("revoke", at.story.at, "")
    envelope = json.loads(signed.verified.raw) | {"params": {"id": "plain", "nonce": str(at.story.at)}}
    return at.post("/directive/revoke", **pair("envelope", json.dumps(envelope).encode()))


@dataclass(frozen=True)
class Act:
    """What a caller asks, what comes of it in the journal, and what it hears when it asks again after that."""

    name: str
    ask: Callable[[Counter], Coroutine[Any, Any, Response]]
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
async def on_stage(folder: StateFolder) -> AsyncIterator[Counter]:
    """A life of which an agent has directives."""
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
        yield Counter(life, story)


@pytest.mark.promise("P3", "P4", "P14")
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
async def test_who_leaves_at_any_await_stops_nothing_and_gets_nothing_twice(folder: StateFolder, act: Act) -> None:
    unheard = 0
    for at in count(1):
        async with on_stage(folder) as counter:
            before, test = counter.made(act.makes), counter.made(SelftestPassed)
            leaving = Leaving(act.ask(counter), at)
            answer, _ = await asyncio.gather(leaving.end(), counter.story.selftest())
            await counter.life.journal.durable()
            written = counter.made(act.makes) - before
            assert counter.made(SelftestPassed) == test + 1
            assert answer is None or answer.status == 200
            _same_after_a_power_cut(folder, counter.life)
            unheard += answer is None and written

            counter.story.at = Instant(counter.story.at + SECOND)
            again = await act.ask(counter)
            assert again.status == (act.again if written else 200)
            assert counter.made(act.makes) == before + 1, "once, whatever the caller heard"
            if answer:
                assert leaving.waited < at
                break
    assert unheard, "nobody ever left while the record was being written"


def _same_after_a_power_cut(folder: StateFolder, life: Life) -> None:
    book, _ = restart.read(folder, life.disk.crash(at_most(0), names_kept=False))
    assert picture(book) == picture(life.turn.book)
