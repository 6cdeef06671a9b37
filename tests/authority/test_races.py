"""Many at once, over connections of their own: what was signed once happens once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from broker.wire.act_records import CallClaimed
from tests.authority.desk import Desk, asked, call, code, wide_policy
from tests.rig import Agent


def beside(agent: Agent) -> Agent:
    """The same identity over another connection."""
    other = Agent(agent.rig, agent.cn)
    other.key, other.certificate = agent.key, agent.certificate
    return other


def at_once(*works: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(works)) as pool:
        return [each.result() for each in [pool.submit(work) for work in works]]


def calls_at_once(agents: list[Agent], name: str, arguments: Any = None, **more: Any) -> Counter[str]:
    return Counter(code(one) for one in at_once(*(lambda a=a: call(a, name, arguments, **more) for a in agents)))


@pytest.mark.promise("P21")
def test_parallel_readers_get_exactly_what_the_lease_has(house: Desk) -> None:
    agent = house.rig.enrol("readers")
    before = len(house.reached("pid"))
    answer = house.lease(agent, "mail", ops=3, request=asked(agent, "s__pid"))
    assert answer.json()["granted"]
    seen = calls_at_once([beside(agent) for _ in range(6)], "s__pid")
    assert seen == {"": 3, "consent_required": 3}
    assert len(house.reached("pid")) - before == 3, "so many reached the server"


@pytest.mark.promise("P21")
def test_eight_agents_use_up_nothing_of_each_other(house: Desk) -> None:
    agents = [house.rig.enrol(f"eight-{number}") for number in range(8)]
    requests = [asked(agent, "s__pid") for agent in agents]
    for agent, request in zip(agents, requests, strict=True):
        house.lease(agent, "mail", ops=1, request=request)
    assert calls_at_once([*agents, *map(beside, agents)], "s__pid") == {"": 8, "consent_required": 8}


@pytest.mark.promise("P20", "P3")
def test_one_act_is_executed_once_however_many_call(house: Desk) -> None:
    agent = house.rig.enrol("doers")
    house.approve(asked(agent, "s__echo", {"race": 1}))
    seen = calls_at_once([beside(agent) for _ in range(5)], "s__echo", {"race": 1})
    assert seen == {"": 1, "consent_required": 4}
    assert [one["arguments"] for one in house.reached("echo")].count({"race": 1}) == 1


@pytest.mark.promise("P20")
def test_two_acts_of_one_digest_are_executed_twice(house: Desk) -> None:
    agent = house.rig.enrol("twice")
    house.approve(asked(agent, "s__echo", {"two": 2}))
    id = house.tool_call(agent, "echo", {"two": 2}).json()["id"]
    assert agent.consume(id).json()["enforced"] is True
    assert calls_at_once([beside(agent) for _ in range(4)], "s__echo", {"two": 2}) == {"": 2, "consent_required": 2}


@pytest.mark.promise("P20")
def test_one_call_id_is_executed_once(house: Desk) -> None:
    agent = house.rig.enrol("named")
    before = len(house.reached("look"))
    agents = [beside(agent) for _ in range(4)]
    seen = calls_at_once(agents, "s__look", {"paths": []}, call_id="just-once")
    assert seen[""] >= 1
    assert set(seen) <= {"", "in_progress"}
    assert len(house.reached("look")) - before == 1


@pytest.mark.promise("P24")
def test_parallel_calls_share_the_last_units_of_a_budget(house: Desk) -> None:
    agent = house.rig.enrol("spender")
    house.apply(wide_policy(budgets={"max_tool_calls": 4}), scope="agent/spender")
    seen = calls_at_once([beside(agent) for _ in range(6)], "s__look", {"paths": []})
    assert seen == {"": 4, "budget_exceeded": 2}


@pytest.mark.promise("P20")
def test_of_two_operators_who_answer_one_is_heard(house: Desk) -> None:
    agent = house.rig.enrol("asker")
    request = asked(agent, "s__echo", {"both": 1})
    answers = at_once(
        lambda: house.approve(request), lambda: house.signed("request_deny", id=request), lambda: house.approve(request)
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    assert {answer.json()["reason"] for answer in answers if answer.status_code == 409} == {"already_resolved"}


@pytest.mark.promise("P20")
def test_many_calls_for_one_thing_are_one_request(house: Desk) -> None:
    agent = house.rig.enrol("flooder")
    claims = len(house.facts(CallClaimed))
    agents = [beside(agent) for _ in range(3)]
    for _ in range(10):
        assert calls_at_once(agents, "s__echo", {"flood": 1}) == {"consent_required": 3}
    rows = [row for row in house.signed("request_list").json()["requests"] if row["agent"]["cn"] == "flooder"]
    assert len(rows) == 1
    assert len(house.facts(CallClaimed)) == claims


@pytest.mark.promise("P20")
@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_a_call_that_waits_hears_the_operators_answer(house: Desk, answer: str) -> None:
    agent = house.rig.enrol(f"waiter-{answer}")
    arguments = {"wait": answer}
    request = asked(agent, "s__echo", arguments)

    def say() -> None:
        if answer == "approve":
            house.approve(request)
        else:
            house.signed("request_deny", id=request, note="not today")

    result, _ = at_once(lambda: call(agent, "s__echo", arguments, wait_s=30), say)
    assert code(result) == ("" if answer == "approve" else "request_denied")
