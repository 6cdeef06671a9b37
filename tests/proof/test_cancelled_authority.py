"""A caller who leaves a tool call or an order at any await: it is done once or not at all, restart or no restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker import restart
from broker.doors.http import Response
from broker.journal.create import create
from broker.journal.state import StateFolder
from broker.wire import policy
from broker.wire.act_records import (
    ActEnded,
    ActGranted,
    AllStopped,
    CallClaimed,
    CallEnded,
    CallFrozen,
    LeaseClosed,
    LeaseOpened,
    OutcomeNoted,
    PolicyApplied,
    RequestDenied,
    RequestOpened,
    RunStarted,
    RunStopped,
    StopLifted,
    ToolsAccepted,
    UsageReported,
)
from broker.wire.names import Instant
from broker.wire.records import DirectiveAdmitted, DirectiveConsumed, EnvelopeAccepted, Record, SelftestPassed
from broker.wire.statement import LeaseAction
from broker.wire.times import SECOND
from tests.fakes.fake_disk import at_most
from tests.journal import setting
from tests.proof import tool_desk
from tests.proof.leaving import Leaving
from tests.proof.life import Life, picture
from tests.proof.scenario import Story
from tests.proof.tool_office import Office, Sending, defined, office, word_of
from tests.proof.watched_disk import WatchedDisk

Asking = Callable[[Office], Coroutine[Any, Any, Response]]
OTHER = policy.encode(policy.of(tool_desk.POLICY | {"name": "other"}))
FIGURES = {"run": "run-1", "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 5}


async def _nothing(at: Office) -> None:
    return


@dataclass(frozen=True)
class Act:
    """What a caller asks, and all that comes of it in the journal, in order.

    again: why it is not done when it is asked once more. before: what has happened already. says: why it is not done
    at first. adds: asked again it is another one. leased: a restart ends what it rests on.
    """

    name: str
    ask: Asking
    makes: tuple[type, ...]
    again: str = ""
    before: Callable[[Office], Awaitable[None]] = _nothing
    says: str = ""
    adds: bool = False
    leased: bool = False


ORDERED = EnvelopeAccepted
CALLED = CallClaimed, CallEnded
SPENT, ASKS = "envelope_replayed", "consent_required"
CALLS = [
    Act("a call", lambda o: o.call("look", call_id="one"), CALLED),
    Act("a call of an act", lambda o: o.call("write"), CALLED, ASKS, Office.approved),
    Act("a call of a lease", lambda o: o.call("read", call_id="one"), CALLED, "", Office.leased, leased=True),
]
HELD = [
    Act("send a call", lambda o: o.says("held", o.write), (DirectiveAdmitted, CallFrozen), "id_seen"),
    Act("consume a call", lambda o: o.post("/directive/consume", id="held"), (DirectiveConsumed, ActGranted),
        "not found", Office.held),
]  # fmt: skip
OWN = [
    Act("a call that asks", lambda o: o.call("write"), (RequestOpened,), ASKS, Office.looked, ASKS),
    Act("lease_request", lambda o: o.own("lease_request", {"account": "mail"}), (RequestOpened,), ASKS, says=ASKS),
    Act("lease_release", lambda o: o.own("lease_release", {"account": "mail"}), (LeaseClosed,), "", Office.leased),
    Act("request_status", lambda o: o.own("request_status", {"request_id": o.request}), (), "", Office.asks),
]
ORDERS = [
    Act("approve", lambda o: o.approves(), (ActGranted,), "id_seen", Office.asks),
    Act("deny", lambda o: o.signed("request_deny", id=o.request), (ORDERED, RequestDenied), SPENT, Office.asks),
    Act("lease open", lambda o: o.says("lease-1", LeaseAction("mail", 90, 2)), (LeaseOpened,), "id_seen"),
    Act("lease close", lambda o: o.signed("lease_close", id="lease-1"), (ORDERED, LeaseClosed), SPENT, Office.leased),
    Act("act revoke", lambda o: o.signed("act_revoke", id="act-1"), (ORDERED, ActEnded), SPENT, Office.approved),
    Act("policy apply", lambda o: o.signed("policy_apply", OTHER, scope="instance"), (ORDERED, PolicyApplied), SPENT),
    Act("tools accept", lambda o: o.signed("tools_accept", o.tools), (ORDERED, ToolsAccepted), SPENT),
    Act("run new", lambda o: o.signed("run_new", cn="worker-a"), (ORDERED, RunStopped, RunStarted), SPENT),
    Act("run stop", lambda o: o.signed("run_stop", run="run-1"), (ORDERED, RunStopped), SPENT),
    Act("usage", lambda o: o.post("/usage", **FIGURES), (UsageReported,), adds=True),
    Act("stop-all", lambda o: o.post("/stop"), (AllStopped,)),
    Act("resume", lambda o: o.signed("stop_lift"), (ORDERED, StopLifted), SPENT, Office.stopped),
    Act("outcome note", lambda o: o.signed("outcome_note", claim="claim-1", note="It is there."),
        (ORDERED, OutcomeNoted), SPENT, Office.unknown),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StateFolder]:
    with StateFolder.create(tmp_path / "state", setting.DEMO) as made:
        yield made


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """Where the server counts, and what it defines."""
    made = tmp_path_factory.mktemp("workshop")
    return made, asyncio.run(defined(made))


@asynccontextmanager
async def opened(folder: StateFolder, workshop: tuple[Path, bytes], word: str) -> AsyncIterator[Office]:
    disk = WatchedDisk([folder.path, folder.journal, folder.payloads])
    create(folder, disk, setting.CA_DIGEST, setting.CREATED_AT)
    servers = Sending(workshop[0])
    try:
        async with office(Life(folder, disk), servers, workshop[1], word) as made:
            yield made
    finally:
        await servers.stop()


@pytest.mark.promise("P3", "P4", "P20", "P21", "P24")
@pytest.mark.parametrize("act", [*CALLS, *HELD, *OWN, *ORDERS], ids=lambda act: act.name)
async def test_who_leaves_at_any_await_has_it_once_or_not_at_all(
    folder: StateFolder, workshop: tuple[Path, bytes], act: Act
) -> None:
    unheard = 0
    for at in count(1):
        async with opened(folder, workshop, f"{act.name.replace(' ', '-')}-{at}") as one:
            await act.before(one)
            begins = one.life.records[-1].seq + 1
            cuts, sending = list[WatchedDisk](), list[WatchedDisk]()
            one.servers.before_call = lambda one=one, sending=sending: sending.append(_cut(one))  # type: ignore[misc]
            beside = asyncio.create_task(one.story.selftest())
            heard = await Leaving(act.ask(one), at).end()
            cuts.append(_cut(one))
            await beside
            await one.quiet()
            written = _made(one.life.records, begins)
            assert written in ([], [*act.makes]), "a part of it"
            assert heard is None or (word_of(heard), written) == (act.says, [*act.makes])
            book, _ = restart.read(folder, _cut(one))
            assert picture(book) == picture(one.life.turn.book)
            unheard += heard is None and written == [*act.makes]

            await _asked_again(one, act, bool(written), begins)
            assert all(CallClaimed in _left(folder, cut, begins) for cut in sending), "sent before it was written"
            for cut in [*cuts, *sending]:
                await _asked_after_a_restart(one, act, cut, begins)
            if heard:
                break
    assert unheard, "nobody ever left while it was going on"


async def _asked_again(one: Office, act: Act, written: bool, begins: int) -> None:
    """By the same caller: it is done once, whatever that one heard."""
    one.story.at = Instant(one.story.at + SECOND)
    answer = await act.ask(one)
    await one.quiet()
    assert word_of(answer) == (act.again if written or not act.makes else act.says)
    made = _made(one.life.records, begins)
    assert all(made.count(kind) == 1 + (act.adds and written) for kind in act.makes)
    assert one.reached() == made.count(CallClaimed)


async def _asked_after_a_restart(one: Office, act: Act, cut: WatchedDisk, begins: int) -> None:
    """The machine lost its power as this disk lay then: the whole of it was done or nothing, and it is done once."""
    left = _left(one.life.folder, cut, begins)
    assert left in ([], [*act.makes]) or left == [CallClaimed] == [*act.makes][:1], "a part of it"
    life, reached = Life(one.life.folder, cut), one.reached()
    async with life.session(one.story.at):
        after = replace(one, life=life, story=Story(life, one.story.at, 1), _tasks=set())
        await after.gateway.settle()
        answer = await act.ask(after)
        await after.quiet()
        assert all(claim.outcome for claim in life.turn.book.ledger.claims.values()), "a call without an end"
    made = left + _made(life.records, begins)
    once = bool(left) or not act.leased
    assert all(made.count(kind) == once + (act.adds and bool(left)) for kind in act.makes)
    assert one.reached() - reached == made.count(CallClaimed) - left.count(CallClaimed), "called twice"
    if left == [CallClaimed] and not act.again:
        assert word_of(answer) == "outcome_unknown"


def _cut(one: Office) -> WatchedDisk:
    """What a power cut would leave at this moment."""
    return one.life.disk.crash(at_most(0), names_kept=False)


def _left(folder: StateFolder, disk: WatchedDisk, begins: int) -> list[type]:
    return _made(setting.read(folder, disk)[1], begins)


def _made(records: list[Record], begins: int) -> list[type]:
    """The kinds of the records from that number on; not of what others did beside."""
    kinds = [type(record.fact) for record in records if record.seq >= begins]
    return [kind for kind in kinds if kind is not SelftestPassed]
