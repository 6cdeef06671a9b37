"""kill -9 at any moment: what was acknowledged stays, what was used stays used."""

from __future__ import annotations

import base64
import stat
import subprocess
import sys

import pytest

from broker.wire import statement
from broker.wire.names import NAMESPACE_ADMIN, DirectiveId
from tests.rig import LEVER, WRITE_FILE, Agent, Rig, is_miss, sign


@pytest.mark.promise("P4")
def test_every_end_of_a_directive_survives_kill_9(own_rig: Rig) -> None:
    rig = own_rig
    agent = rig.enrol("worker-a")
    consumed, revoked, active = (rig.send(action=WRITE_FILE) for _ in range(3))
    old = rig.enrol("worker-b")
    invalidated = rig.send("worker-b")
    new = rig.enrol("worker-b")
    assert agent.consume(consumed).status_code == 200
    assert rig.revoke(revoked).json() == {"revoked": True}
    rig.kill()
    rig.start()
    agent.close(), new.close(), old.close()
    for id in (consumed, revoked):
        assert is_miss(agent.consume(id))
    assert is_miss(new.consume(invalidated))
    assert is_miss(old.consume(invalidated))
    states = {id: rig.row(id)["state"] for id in (consumed, revoked, invalidated, active)}
    assert list(states.values()) == ["consumed", "revoked", "invalidated", "active"]
    assert agent.consume(active).status_code == 200, "an acknowledged send survives"
    seen_before = rig.send_raw(statement.encode(rig.statement(directive_id=DirectiveId(consumed))))
    assert seen_before.json()["reason"] == "id_seen"
    assert rig.cli("journal", "verify").returncode == 0


@pytest.mark.promise("P4", "P2")
def test_a_generation_survives_kill_9(own_rig: Rig) -> None:
    old = own_rig.enrol("worker-a")
    new = own_rig.enrol("worker-a")
    own_rig.kill()
    own_rig.start()
    old.close(), new.close()
    id = own_rig.send("worker-a", 2)
    assert is_miss(old.consume(id))
    assert new.consume(id).status_code == 200


@pytest.mark.promise("P8")
def test_a_replayed_envelope_is_refused_across_a_restart(own_rig: Rig) -> None:
    raw = own_rig.envelope("list")
    body = {
        "envelope": base64.b64encode(raw).decode(),
        "signature": base64.b64encode(sign(own_rig.key, NAMESPACE_ADMIN, raw)).decode(),
    }
    assert own_rig.post("/directive/list", body).status_code == 200
    own_rig.kill()
    own_rig.start()
    assert own_rig.post("/directive/list", body).json()["reason"] == "envelope_replayed"


@pytest.mark.promise("P14", "P4")
def test_a_lost_answer_can_be_fetched_again_after_a_restart(own_rig: Rig) -> None:
    agent = own_rig.enrol("worker-a")
    id = own_rig.send(action=WRITE_FILE)
    first = agent.consume(id, "attempt-1").content
    own_rig.kill()
    own_rig.start()
    agent.close()
    assert agent.consume(id, "attempt-1").content == first
    assert is_miss(agent.consume(id, "attempt-2"))


@pytest.mark.promise("P14")
def test_repeats_can_be_switched_off(own_rig: Rig) -> None:
    own_rig.stop()
    text = own_rig.config.read_text()
    own_rig.config.write_text(text.replace("limits: {", "limits: {consume_repeat_s: 0, "))
    own_rig.start()
    agent = own_rig.enrol("worker-a")
    id = own_rig.send()
    assert agent.consume(id, "attempt-1").status_code == 200
    assert is_miss(agent.consume(id, "attempt-1"))


@pytest.mark.promise("P15")
def test_a_ticket_is_spent_across_a_restart_and_its_lost_answer_is_not_lost(own_rig: Rig) -> None:
    ticket = own_rig.invite("worker-a")
    own_rig.kill()
    own_rig.start()
    agent, thief = Agent(own_rig, "worker-a"), Agent(own_rig, "worker-a")
    first = agent.redeem(ticket)
    assert first.status_code == 200
    own_rig.kill()
    own_rig.start()
    assert agent.redeem(ticket).json() == first.json()
    assert thief.redeem(ticket).status_code == 403


@pytest.mark.promise("P34")
def test_the_socket_and_its_folder_are_the_operators_alone(own_rig: Rig) -> None:
    assert stat.S_IMODE(own_rig.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_rig.state.stat().st_mode) == 0o700


@pytest.mark.promise("P34")
def test_a_second_daemon_on_the_same_state_folder_refuses_to_start(own_rig: Rig) -> None:
    argv = [sys.executable, LEVER, "broker", "serve", str(own_rig.config)]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert second.returncode not in (0, None)
    assert "holds this state folder" in second.stderr
    assert own_rig.post("/directive/list", {}).status_code == 400, "the first one still answers"


def test_a_clean_shutdown_is_written_down_and_leaves_no_socket(own_rig: Rig) -> None:
    assert own_rig.stop() == 0
    assert not own_rig.socket.exists()
    shown = own_rig.cli("journal", "show", "--json").stdout
    assert '"broker_stopped"' in shown.splitlines()[-1]


def test_a_stale_socket_file_is_replaced(own_rig: Rig) -> None:
    own_rig.kill()
    assert own_rig.socket.exists()
    own_rig.start()
    with own_rig.line() as client:
        assert client.get("/health").json()["instance"] == "demo"
