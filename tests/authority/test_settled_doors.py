"""A settled request through the real doors of a real broker: told, listed, kept over a kill, gone once looked at."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from broker.wire.records import PointerDelivered
from tests.authority.desk import Desk, asked, call, code
from tests.rig import Agent

pytestmark = pytest.mark.promise("P9", "P20")


def inbox(agent: Agent, query: str = "") -> dict[str, list[str]]:
    found: dict[str, Any] = agent.get(f"/inbox{query}").json()
    return {name: [pointer["id"] for pointer in pointers] for name, pointers in found.items()}


def test_an_answer_ends_the_wait_is_written_down_and_is_there_after_a_kill(own_house: Desk) -> None:
    house = own_house
    agent = house.rig.enrol("settled")
    approved, denied = (asked(agent, "s__echo", {"n": number}) for number in (1, 2))
    assert inbox(agent) == {"pointers": []}
    with ThreadPoolExecutor(1) as other:
        poll = other.submit(inbox, agent, "?wait=30&requests=1")
        assert house.approve(approved).status_code == 200
        assert poll.result() == {"pointers": [], "requests": [approved]}
    assert house.signed("request_deny", id=denied).status_code == 200
    directive = house.rig.send("settled")
    house.rig.kill()
    told = [fact.id for fact in house.facts(PointerDelivered)]
    assert told[:2] == [approved, denied]
    house.rig.start()
    assert inbox(agent) == {"pointers": [directive], "requests": [approved, denied]}
    assert call(agent, "request_status", {"request_id": denied})["structuredContent"]["state"] == "denied"
    assert code(call(agent, "s__echo", {"n": 1})) == ""
    assert inbox(agent) == {"pointers": [directive]}
    assert house.pending(denied)["told_at"]
