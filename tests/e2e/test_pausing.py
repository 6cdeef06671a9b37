"""An agent that the operator paused: barred at once, on open connections too, and nothing that waited is lost."""

from __future__ import annotations

import pytest

from broker.wire import statement
from broker.wire.names import Instant
from broker.wire.times import SECOND
from tests.rig import Agent, Rig, now


def turn(rig: Rig, verb: str, cn: str) -> object:
    return rig.admin(f"/admin/agent_{verb}", f"agent_{verb}", cn=cn).json()


def shown(rig: Rig, cn: str) -> dict[str, object]:
    row: dict[str, object] = rig.admin("/admin/agent_show", "agent_show", cn=cn).json()["agents"][0]
    return row


def statuses(agent: Agent, id: str) -> set[int]:
    return {
        agent.consume(id).status_code,
        agent.check(id).status_code,
        agent.report(id).status_code,
        agent.get("/inbox").status_code,
    }


def test_a_paused_agent_gets_nothing_and_loses_nothing(rig: Rig) -> None:
    agent = rig.enrol("paused-a")
    before = rig.send("paused-a")
    assert agent.check(before).status_code == 200, "over a connection that stays open"
    assert turn(rig, "pause", "paused-a") == {"paused": True}
    assert statuses(agent, before) == {403}
    meanwhile = rig.send("paused-a")
    assert rig.row(meanwhile)["pointer"]["state"] == "queued", "told to nobody while nobody may act on it"
    assert shown(rig, "paused-a")["state"] == "paused"
    assert turn(rig, "resume", "paused-a") == {"resumed": True}
    assert agent.consume(before).status_code == agent.consume(meanwhile).status_code == 200


def test_a_paused_agent_keeps_its_certificate_alive(rig: Rig) -> None:
    agent = rig.enrol("paused-b")
    assert turn(rig, "pause", "paused-b") == {"paused": True}
    renewed = agent.renew()
    assert renewed.status_code == 200
    turn(rig, "resume", "paused-b")
    assert agent.consume(rig.send("paused-b")).status_code == 200


def test_a_ticket_from_before_is_no_way_around_a_pause(rig: Rig) -> None:
    rig.enrol("paused-c")
    kept = rig.invite("paused-c")
    turn(rig, "pause", "paused-c")
    again = Agent(rig, "paused-c")
    pem = again.redeem(kept).json()["cert"]
    successor = again.certified(pem)
    assert successor.get("/inbox").status_code == 403
    assert shown(rig, "paused-c")["state"] == "paused"
    turn(rig, "resume", "paused-c")
    assert successor.get("/inbox").status_code == 200


def test_a_pause_is_said_once_and_only_of_whom_there_is(rig: Rig) -> None:
    rig.enrol("paused-d")
    assert turn(rig, "resume", "paused-d") == {"resumed": False}
    assert turn(rig, "pause", "nobody-here") == {"paused": False}
    assert turn(rig, "pause", "paused-d") == {"paused": True}
    assert turn(rig, "pause", "paused-d") == {"paused": False}


def test_a_directive_for_a_paused_agent_is_taken_and_says_that_it_waits(rig: Rig) -> None:
    rig.enrol("paused-e")
    turn(rig, "pause", "paused-e")
    told = rig.send_raw(statement.encode(rig.statement("paused-e"))).json()
    assert (told["delivered"], told["paused"]) == (False, True)


@pytest.mark.promise("P4")
def test_a_pause_outlives_a_kill(own_rig: Rig) -> None:
    agent = own_rig.enrol("paused-f")
    id = own_rig.send("paused-f")
    assert turn(own_rig, "pause", "paused-f") == {"paused": True}
    own_rig.kill()
    own_rig.start()
    assert statuses(agent, id) == {403}
    assert turn(own_rig, "resume", "paused-f") == {"resumed": True}
    assert agent.consume(id).status_code == 200


def test_what_is_pending_is_shown_with_its_agent(rig: Rig) -> None:
    agent = rig.enrol("pending-a")
    open_now, later, gone = (
        rig.send("pending-a"),
        rig.send("pending-a", not_before=Instant(now() + 100 * SECOND)),
        rig.send("pending-a"),
    )
    agent.consume(gone)
    pending = shown(rig, "pending-a")["pending"]
    assert isinstance(pending, list)
    assert [(row["id"], row["state"]) for row in pending] == [(open_now, "active"), (later, "scheduled")]
