"""The built-in channel: a long poll ends when something came, and misses nothing."""

from __future__ import annotations

import asyncio

import pytest

from broker.effects.channels import InboxChannel
from broker.wire.names import Cn, DirectiveId
from tests.fakes.fake_scheduler import settle

A, B = Cn("worker-a"), Cn("worker-b")
LONG_S = 600.0


async def test_delivering_ends_every_wait_of_that_agent_and_of_no_other() -> None:
    inbox = InboxChannel()
    mine = [asyncio.create_task(inbox.wait(A, LONG_S)) for _ in range(3)]
    other = asyncio.create_task(inbox.wait(B, LONG_S))
    await settle()
    await inbox.deliver(A, DirectiveId("d-1"))
    await asyncio.gather(*mine)
    assert not other.done()
    inbox.close()
    await other


async def test_a_wait_ends_by_itself() -> None:
    await InboxChannel().wait(A, 0.01)


async def test_what_comes_between_looking_and_waiting_is_not_missed() -> None:
    inbox = InboxChannel()
    mark = inbox.mark(A)
    await inbox.deliver(A, DirectiveId("d-1"))
    await inbox.wait(A, LONG_S, mark)
    await inbox.wait(B, 0.01, inbox.mark(B))


async def test_a_mark_does_not_end_the_wait_for_what_is_still_to_come() -> None:
    inbox = InboxChannel()
    await inbox.deliver(A, DirectiveId("d-1"))
    waiting = asyncio.create_task(inbox.wait(A, LONG_S, inbox.mark(A)))
    await settle()
    assert not waiting.done()
    inbox.wake(A)
    await waiting


async def test_closing_ends_all_waits_and_later_ones_at_once() -> None:
    inbox = InboxChannel()
    waits = [asyncio.create_task(inbox.wait(cn, LONG_S)) for cn in (A, B)]
    await settle()
    inbox.close()
    await asyncio.gather(*waits)
    await inbox.wait(A, LONG_S)


async def test_a_caller_who_goes_away_leaves_the_others_waiting() -> None:
    inbox = InboxChannel()
    stays, goes = (asyncio.create_task(inbox.wait(A, LONG_S)) for _ in range(2))
    await settle()
    goes.cancel()
    with pytest.raises(asyncio.CancelledError):
        await goes
    assert not stays.done()
    inbox.wake(A)
    await stays
