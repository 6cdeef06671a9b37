"""What came of a directive, in its agent's own word: said once, by who consumed it, and shown as unverified."""

from __future__ import annotations

import pytest

from tests.rig import Agent, Rig, is_miss

Agents = tuple[Agent, Agent]


def test_a_report_is_listed_and_shown_as_the_agents_word(rig: Rig, agents: Agents) -> None:
    agent, id = agents[0], rig.send()
    assert agent.consume(id).status_code == 200
    assert agent.report(id, "failed", "the disk is full").json() == {"id": id, "reported": "failed"}
    told = rig.row(id)["report"]
    assert (told["outcome"], told["note"]) == ("failed", "the disk is full")
    shown = rig.cli("directive", "show", id).stdout
    assert "failed, says the agent at " in shown
    assert "the disk is full" in shown
    assert f"{id}  consumed, failed" in rig.cli("directive", "list").stdout


def test_a_report_is_made_once_and_a_lost_answer_is_not_lost(rig: Rig, agents: Agents) -> None:
    agent, id = agents[0], rig.send()
    agent.consume(id)
    assert agent.report(id, "done", "fine").status_code == 200
    assert agent.report(id, "done", "fine").status_code == 200
    assert is_miss(agent.report(id, "failed", "fine"))
    assert is_miss(agent.report(id, "done", "not so fine"))
    assert rig.row(id)["report"]["outcome"] == "done"


def test_there_is_nothing_to_report_on_what_one_has_not_consumed(rig: Rig, agents: Agents) -> None:
    agent, other = agents
    active, revoked, theirs = rig.send(), rig.send(), rig.send("worker-b")
    rig.revoke(revoked)
    other.consume(theirs)
    for id in (active, revoked, theirs, "unknown", "no id!"):
        assert is_miss(agent.report(id))
    assert rig.row(active)["state"] == "active"


def test_a_predecessors_directive_is_not_its_successors_to_report(rig: Rig) -> None:
    old = rig.enrol("reporter")
    id = rig.send("reporter")
    old.consume(id)
    new = rig.enrol("reporter")
    assert is_miss(new.report(id))
    assert is_miss(old.report(id))


@pytest.mark.parametrize(
    "body",
    [
        {"outcome": "done"},
        {"id": "a", "outcome": "perfect"},
        {"id": "a", "outcome": "done", "note": "x" * 1025},
        {"id": "a", "outcome": "done", "note": "\u00e4" * 600},
        {"id": "a", "outcome": "done", "more": "x"},
    ],
)
def test_a_report_of_the_wrong_shape_is_a_400_that_tells_nothing(
    rig: Rig, agents: Agents, body: dict[str, str]
) -> None:
    assert agents[0].post("/directive/report", body).status_code == 400


def test_a_report_outlives_a_restart(own_rig: Rig) -> None:
    agent = own_rig.enrol("worker-a")
    id = own_rig.send()
    agent.consume(id)
    agent.report(id, "declined", "not mine to do")
    own_rig.kill()
    own_rig.start()
    assert own_rig.row(id)["report"]["note"] == "not mine to do"
