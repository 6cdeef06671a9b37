"""Pointers: told at once, told again until it worked or the directive ended, and no agent at another's cost."""

from __future__ import annotations

import asyncio

import pytest

from broker.errors import Fatal, Malformed, Reason, Refused
from broker.wire.names import Cn, DirectiveId, Fingerprint
from broker.wire.records import AgentPaused, AgentResumed, Draft, PointerDelivered, PointerFailed
from broker.wire.times import SECOND
from tests.effects.stage import START, ScriptedChannel, Stage


async def test_an_admitted_directive_is_told_at_once_and_written_down() -> None:
    stage = Stage()
    stage.admit("d-1")
    assert await stage.asked("d-1") is True
    assert stage.default.told == [("worker-a", "d-1")]
    assert stage.of(PointerDelivered) == [PointerDelivered(DirectiveId("d-1"), "worker-a", "inbox", 1)]  # type: ignore[arg-type]
    assert stage.book.directives[DirectiveId("d-1")].pointer.delivered_at == START


class TestAskingForTheFirstAttempt:
    async def test_before_the_outbox_has_heard_of_it(self) -> None:
        stage = Stage()
        asking = asyncio.create_task(stage.asked("d-1"))
        await stage.settle()
        stage.admit("d-1")
        assert await asking is True

    async def test_long_after_it_ended(self) -> None:
        stage = Stage()
        stage.default.fail = ["nobody there"]
        stage.admit("bad")
        stage.admit("good", cn="worker-b")
        await stage.settle()
        assert await stage.asked("good", 0) is True
        assert await stage.asked("bad", 0) is False

    async def test_a_later_success_does_not_change_how_the_first_one_went(self) -> None:
        stage = Stage()
        stage.default.fail = ["nobody there"]
        stage.admit("d-1")
        assert await stage.asked("d-1") is False
        await stage.scheduler.advance(2)
        assert stage.default.ids == ["d-1", "d-1"]
        assert await stage.asked("d-1", 0) is False

    async def test_nobody_waits_longer_than_they_said(self) -> None:
        stage = Stage()
        stage.default.gate = asyncio.Event()
        stage.admit("d-1")
        patient = asyncio.create_task(stage.asked("d-1"))
        assert await stage.asked("d-1", 0) is False
        stage.default.gate.set()
        assert await patient is True

    async def test_it_is_written_down_before_it_counts_as_delivered(self) -> None:
        stage = Stage()
        stage.take_fails = [Refused(Reason.CLOCK_BEHIND)]
        stage.admit("d-1")
        assert await stage.asked("d-1") is False

    async def test_a_directive_that_ended_first(self) -> None:
        stage = Stage()
        stage.admit("d-1", opens_s=60)
        stage.revoke("d-1")
        asking = asyncio.create_task(stage.asked("d-1"))
        await stage.scheduler.advance(60)
        assert asking.done()
        assert await asking is False


@pytest.mark.promise("P10")
async def test_a_failed_pointer_is_told_again_later_and_later_until_it_works() -> None:
    stage = Stage(chance=0.999999)
    stage.default.fail = ["no such pane"] * 4
    stage.admit("d-1")
    await stage.scheduler.advance(60)
    told = [(round(at), id, what, attempt) for at, id, what, attempt in stage.pointers()]
    assert told == [
        (0, "d-1", "no such pane", 1),
        (2, "d-1", "no such pane", 2),
        (6, "d-1", "no such pane", 3),
        (14, "d-1", "no such pane", 4),
        (30, "d-1", "delivered", 5),
    ]
    assert all(failed.next_at > START for failed in stage.of(PointerFailed))


@pytest.mark.promise("P10")
@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_no_try_comes_after_the_directive_has_ended(end: str) -> None:
    stage = Stage()
    stage.default.fail = ["nobody there"] * 1000
    stage.admit("d-1", lasts_s=100 if end == "expired" else 3600)
    await stage.scheduler.advance(100)
    if end == "revoked":
        stage.revoke("d-1")
    tries = len(stage.default.told)
    assert tries > 4
    await stage.scheduler.advance(3600)
    assert len(stage.default.told) == tries
    assert stage.scheduler.timers == [], "nothing is left of it"


@pytest.mark.promise("P10")
async def test_nothing_is_told_before_its_window_opens() -> None:
    stage = Stage()
    stage.admit("later", opens_s=3600, lasts_s=7200)
    stage.admit("now")
    await stage.scheduler.advance(3599.999)
    assert stage.default.ids == ["now"]
    await stage.scheduler.advance(0.001)
    assert stage.default.ids == ["now", "later"]


async def test_a_window_that_opened_while_the_machine_slept_is_seen_within_a_minute() -> None:
    stage = Stage()
    stage.admit("later", opens_s=3600, lasts_s=7200)
    stage.scheduler.set_clock(3600)
    await stage.scheduler.advance(60)
    assert stage.default.ids == ["later"]


async def test_a_clock_set_back_delays_a_window_instead_of_opening_it() -> None:
    stage = Stage()
    stage.admit("later", opens_s=30)
    stage.scheduler.set_clock(-120)
    await stage.scheduler.advance(149)
    assert stage.default.ids == []
    await stage.scheduler.advance(1)
    assert stage.default.ids == ["later"]


async def test_an_id_that_waits_already_is_not_queued_twice() -> None:
    stage = Stage()
    stage.default.gate = asyncio.Event()
    records = stage.admit("d-1", "d-2")
    stage.outbox.hear(records)
    stage.outbox.resume(stage.book.directives.values())
    stage.default.gate.set()
    await stage.scheduler.advance(600)
    assert stage.default.ids == ["d-1", "d-2"]


@pytest.mark.promise("P11")
async def test_pointers_beyond_an_agents_rate_wait_and_are_not_lost() -> None:
    stage = Stage(per_minute=30)
    ids = [f"d-{i}" for i in range(40)]
    stage.admit(*ids)
    stage.admit("other", cn="worker-b")
    await stage.settle()
    assert stage.default.ids == [*ids[:1], "other", *ids[1:30]], "a burst of 30, and the other agent is not behind it"
    await stage.scheduler.advance(2)
    assert len(stage.default.ids) == 32
    await stage.scheduler.advance(18)
    assert sorted(stage.default.ids) == sorted([*ids, "other"])


@pytest.mark.promise("P11")
async def test_an_agent_with_nothing_waiting_keeps_its_rate() -> None:
    stage = Stage(per_minute=30)
    for wave in range(3):
        stage.admit(*[f"d-{wave}-{i}" for i in range(20)])
        await stage.scheduler.advance(1)
    assert len(stage.default.told) == 31


@pytest.mark.promise("P11")
async def test_retries_count_against_the_rate_too() -> None:
    stage = Stage(per_minute=2)
    stage.default.fail = ["nobody there"] * 1000
    stage.admit(*[f"d-{i}" for i in range(5)], lasts_s=3600)
    await stage.scheduler.advance(600)
    assert 15 < len(stage.default.told) <= 2 + 20


@pytest.mark.promise("P11")
async def test_a_slow_agent_holds_up_nobody_but_itself() -> None:
    stage = Stage()
    slow = ScriptedChannel("command", gate=asyncio.Event())
    stage.channels["worker-a"] = [slow]
    stage.admit("a-1", "a-2")
    stage.admit("b-1", "b-2", cn="worker-b")
    await stage.settle()
    assert stage.default.ids == ["b-1", "b-2"]
    assert slow.ids == ["a-1"]
    assert slow.gate
    slow.gate.set()
    await stage.settle()
    assert slow.ids == ["a-1", "a-2"]


async def test_no_more_agents_than_agreed_are_told_at_the_same_moment_and_all_get_their_turn() -> None:
    stage = Stage(parallel=2)
    gate = stage.default.gate = asyncio.Event()
    for cn in ("worker-a", "worker-b", "worker-c"):
        stage.admit(f"{cn}-1", f"{cn}-2", cn=cn)
    await stage.settle()
    assert stage.default.ids == ["worker-a-1", "worker-b-1"]
    stage.revoke("worker-c-1")
    gate.set()
    await stage.settle()
    assert stage.default.ids[2] == "worker-c-2", "who waited goes before who just had a turn"
    assert len(stage.default.ids) == 5


@pytest.mark.promise("P10")
async def test_only_the_channel_that_failed_is_tried_again_and_until_then_the_pointer_counts_as_failed() -> None:
    stage = Stage()
    inbox, command = ScriptedChannel("inbox"), ScriptedChannel("command", fail=["tmux ended with exit status 1"])
    stage.channels["worker-a"] = [command, inbox]
    stage.admit("d-1")
    assert await stage.asked("d-1") is False
    pointer = stage.book.directives[DirectiveId("d-1")].pointer
    assert (pointer.last_error, pointer.delivered_at) == ("tmux ended with exit status 1", 0)
    await stage.scheduler.advance(2)
    assert (inbox.ids, command.ids) == (["d-1"], ["d-1", "d-1"])
    assert stage.book.directives[DirectiveId("d-1")].pointer.delivered_at == START + 2 * SECOND


async def test_after_a_restart_what_was_not_delivered_is_taken_up_where_it_was_left() -> None:
    stage = Stage()
    stage.default.fail = ["nobody there"] * 3
    stage.admit("bad")
    await stage.scheduler.advance(8)
    stage.admit("good", cn="worker-b")
    await stage.settle()
    await stage.outbox.stop()
    stage.default.told.clear()
    stage.restart()
    await stage.settle()
    assert stage.default.told == [], "not before its time, and not what was told already"
    await stage.scheduler.advance(6)
    assert stage.pointers()[-1] == (14, "bad", "delivered", 4)


class TestStopping:
    async def test_what_runs_ends_and_is_written_and_nothing_else_starts(self) -> None:
        stage = Stage()
        gate = stage.default.gate = asyncio.Event()
        stage.admit("d-1", "d-2")
        stage.admit("later", opens_s=60, cn="worker-b")
        await stage.settle()
        asked = asyncio.create_task(stage.asked("d-2"))
        await stage.settle()
        stopping = asyncio.create_task(stage.outbox.stop())
        await stage.settle()
        assert not stopping.done()
        assert asked.done()
        assert await asked is False
        assert await stage.asked("d-4") is False
        gate.set()
        await stopping
        stage.admit("d-3", cn="worker-c")
        await stage.scheduler.advance(3600)
        assert stage.default.ids == ["d-1"]
        assert stage.pointers() == [(0, "d-1", "delivered", 1)]
        assert stage.scheduler.timers == []

    async def test_stopping_an_idle_outbox_or_twice_is_harmless(self) -> None:
        stage = Stage()
        await stage.outbox.stop()
        await stage.outbox.stop()
        assert await stage.asked("d-1") is False


class TestWhatCannotBeWritten:
    @pytest.mark.promise("P28")
    async def test_when_the_journal_has_failed_nothing_more_is_told(self) -> None:
        stage = Stage()
        stage.take_fails = [Fatal("no space left on device")]
        gate = stage.default.gate = asyncio.Event()
        stage.admit("d-1", "d-2")
        asked = asyncio.create_task(stage.asked("d-1"))
        await stage.settle()
        gate.set()
        assert await asked is False
        stage.admit("d-3", cn="worker-b")
        await stage.scheduler.advance(3600)
        assert stage.default.ids == ["d-1"]

    async def test_while_the_clock_is_behind_the_pointer_stays_due(self) -> None:
        stage = Stage()
        stage.take_fails = [Refused(Reason.CLOCK_BEHIND)] * 2
        stage.admit("d-1")
        await stage.scheduler.advance(10)
        assert stage.default.ids == ["d-1"] * 3
        assert [attempt for *_, attempt in stage.pointers()] == [3]


@pytest.mark.parametrize(
    ("error", "why"),
    [(ZeroDivisionError("x"), "internal error: ZeroDivisionError"), (Malformed("cn", "bad"), "cn: bad")],
)
async def test_a_fault_in_a_channel_costs_an_attempt_and_not_the_pointer(error: Exception, why: str) -> None:
    stage = Stage()
    stage.default.fail = [error]
    stage.admit("d-1", "d-2")
    await stage.scheduler.advance(2)
    assert [(id, what) for _, id, what, _ in stage.pointers()] == [
        ("d-1", why),
        ("d-2", "delivered"),
        ("d-1", "delivered"),
    ]


class TestAPausedAgent:
    async def test_is_told_what_waited_once_it_is_resumed(self) -> None:
        stage, key = Stage(), Fingerprint("SHA256:x")
        stage.write(Draft(AgentPaused(Cn("worker-a"), key)))
        stage.admit("d-1", "d-2")
        stage.admit("other", cn="worker-b")
        await stage.scheduler.advance(300)
        assert stage.default.ids == ["other"]
        stage.outbox.hear([stage.write(Draft(AgentResumed(Cn("worker-a"), key)))])
        await stage.settle()
        assert stage.default.ids == ["other", "d-1", "d-2"]

    async def test_is_not_told_what_ended_meanwhile(self) -> None:
        stage, key = Stage(), Fingerprint("SHA256:x")
        stage.write(Draft(AgentPaused(Cn("worker-a"), key)))
        stage.admit("d-1", "d-2")
        stage.revoke("d-1")
        stage.outbox.hear([stage.write(Draft(AgentResumed(Cn("worker-a"), key)))])
        await stage.settle()
        assert stage.default.ids == ["d-2"]
