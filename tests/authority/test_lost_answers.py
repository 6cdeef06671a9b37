"""An answer that is lost, late or an error: what was sent is never sent again, and what was not can be."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import threading
from typing import Any

import httpx2
import pytest

from broker.wire.act_records import CallClaimed, CallEnded, LeaseClosed
from tests.authority.desk import Desk, asked, call, code, text, until, wide_policy
from tests.rig import Agent
from tests.tool_servers.setting import alive


def approved(house: Desk, agent: Agent, name: str, arguments: Any) -> str:
    request = asked(agent, name, arguments)
    assert house.approve(request).status_code == 200
    return request


def status(agent: Agent, request: str) -> dict[str, Any]:
    return call(agent, "request_status", {"request_id": request})


def secure(agent: Agent, plain: socket.socket) -> ssl.SSLSocket:
    return agent.context().wrap_socket(plain, server_hostname="127.0.0.1")


def ends(house: Desk, cn: str) -> list[str]:
    claims = {fact.claim for fact in house.facts(CallClaimed) if fact.cn == cn}
    return [fact.outcome for fact in house.facts(CallEnded) if fact.claim in claims]


@pytest.mark.promise("P23")
def test_kill_9_between_intent_and_outcome_executes_nothing_twice(own_house: Desk) -> None:
    house = own_house
    agent = house.rig.enrol("killed")
    request = approved(house, agent, "s__echo", {"kill": 9})
    (house.beside / "hold").touch()

    def lose() -> None:
        with pytest.raises(httpx2.TransportError):
            call(agent, "s__echo", {"kill": 9}, call_id="fatal")

    caller = threading.Thread(target=lose)
    caller.start()
    until(lambda: bool(house.reached("echo")))
    house.rig.kill()
    caller.join()
    (house.beside / "hold").unlink()
    house.rig.start()
    agent.close()
    assert code(call(agent, "s__echo", {"kill": 9}, call_id="fatal")) == "outcome_unknown"
    assert code(status(agent, request)) == "outcome_unknown"
    assert code(call(agent, "s__echo", {"kill": 9})) == "consent_required", "the act is spent"
    assert len(house.reached("echo")) == 1, "and was sent once"
    (claim,) = house.facts(CallClaimed)
    assert house.signed("outcome_note", claim=claim.claim, note="it was done").json() == {"noted": True}


@pytest.mark.promise("P23")
@pytest.mark.parametrize("name", ["q__silent", "s__dies"])
def test_no_answer_in_time_and_a_lost_connection_leave_it_unknown(house: Desk, name: str) -> None:
    agent = house.rig.enrol(f"lost-{name[3:]}")
    request = approved(house, agent, name, {"n": 1})
    assert code(call(agent, name, {"n": 1}, call_id="lost")) == "outcome_unknown"
    assert code(call(agent, name, {"n": 1}, call_id="lost")) == "outcome_unknown"
    assert code(status(agent, request)) == "outcome_unknown"
    until(lambda: code(call(agent, name, {"n": 1})) != "server_unavailable")  # its process is not started again at once
    assert code(call(agent, name, {"n": 1})) == "consent_required"
    assert len(house.reached("dies")) <= 1


@pytest.mark.promise("P20")
@pytest.mark.parametrize(("name", "words"), [("fails", "no such branch"), ("refuses", "not today")])
def test_an_error_of_the_servers_is_an_answer_and_spends_the_act(house: Desk, name: str, words: str) -> None:
    agent = house.rig.enrol(f"error-{name}")
    approved(house, agent, f"s__{name}", {})
    result = call(agent, f"s__{name}")
    assert (result["isError"], text(result)) == (True, words)
    assert code(call(agent, f"s__{name}")) == "consent_required"
    assert ends(house, agent.cn) == ["failed"]


@pytest.mark.promise("P20", "P24")
def test_a_server_that_is_away_spends_nothing(house: Desk) -> None:
    """Nor is anybody asked about what would not come to pass."""
    agent = house.rig.enrol("unsent")
    house.lease(agent, "mail", request=asked(agent, "s__pid"))
    pid = int(text(call(agent, "s__pid")))
    approved(house, agent, "s__echo", {"unsent": 1})
    id = next(act for act, row in house.acts().items() if row["agent"]["cn"] == agent.cn)
    (house.beside / "refuse").touch()
    os.kill(pid, signal.SIGKILL)
    until(lambda: code(call(agent, "s__look", {"paths": []})) == "server_unavailable")
    assert code(call(agent, "s__echo", {"unsent": 1}, call_id="one")) == "server_unavailable"
    assert code(call(agent, "s__echo", {"unsent": 2})) == "server_unavailable"
    (house.beside / "refuse").unlink()
    assert (house.acts()[id]["state"], house.acts()[id]["claim"]) == ("active", None)
    results: list[dict[str, Any]] = []

    def again() -> bool:
        results.append(call(agent, "s__echo", {"unsent": 1}, call_id="one"))
        return code(results[-1]) != "server_unavailable"

    until(again)  # the server is not tried again at once
    assert code(results[-1]) == ""
    assert ends(house, agent.cn)[-1] == "done"


@pytest.mark.promise("P23")
def test_a_caller_who_leaves_stops_nothing_and_finds_the_answer(house: Desk) -> None:
    agent = house.rig.enrol("leaver")
    request = approved(house, agent, "s__echo", {"leave": 1})
    (house.beside / "hold").touch()
    before = len(house.reached("echo"))
    body = json.dumps({"name": "s__echo", "arguments": {"leave": 1}, "call_id": "left"}).encode()
    size = f"content-length: {len(body)}\r\n\r\n"
    head = "POST /tools/call HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n" + size
    with socket.create_connection(("127.0.0.1", house.rig.port)) as plain, secure(agent, plain) as line:
        line.sendall(head.encode() + body)
        until(lambda: len(house.reached("echo")) > before)
    assert code(call(agent, "s__echo", {"leave": 1}, call_id="left")) == "in_progress"
    assert status(agent, request)["structuredContent"]["state"] == "running"
    (house.beside / "hold").unlink()
    until(lambda: ends(house, agent.cn) == ["done"])
    answer = call(agent, "s__echo", {"leave": 1}, call_id="left")
    assert '"leave"' in text(answer)
    assert status(agent, request) == answer


@pytest.mark.promise("P20")
def test_an_agent_that_is_enrolled_anew_during_its_call_gets_nothing_of_it(house: Desk) -> None:
    old = house.rig.enrol("renewed")
    request = approved(house, old, "s__echo", {"renew": 1})
    house.lease(old, "mail", request=asked(old, "s__pid"))
    (house.beside / "hold").touch()
    lost: list[object] = []

    def leave() -> None:
        try:
            lost.append(old.post("/tools/call", {"name": "s__echo", "arguments": {"renew": 1}, "call_id": "x"}))
        except httpx2.TransportError as error:
            lost.append(error)

    caller = threading.Thread(target=leave)
    caller.start()
    until(lambda: any(fact.cn == "renewed" for fact in house.facts(CallClaimed)))
    new = house.rig.enrol("renewed")
    (house.beside / "hold").unlink()
    caller.join()
    until(lambda: ends(house, "renewed") == ["done"])
    assert code(status(new, request)) == "not_found"
    assert code(call(new, "s__pid")) == "consent_required"
    assert code(call(new, "s__echo", {"renew": 1}, call_id="x")) == "consent_required"


@pytest.mark.promise("P21", "P20", "P24", "P23")
def test_a_restart_closes_leases_keeps_acts_and_forgets_no_budget(own_house: Desk) -> None:
    house = own_house
    house.apply(wide_policy(budgets={"max_tool_calls": 3}))
    agent = house.rig.enrol("kept")
    house.lease(agent, "mail", request=asked(agent, "s__pid"))
    assert code(call(agent, "s__pid")) == ""
    approved(house, agent, "s__echo", {"kept": 1})
    id = house.tool_call(agent, "echo", {"kept": 2}).json()["id"]
    agent.consume(id)
    house.rig.kill()
    house.rig.start()
    agent.close()
    assert house.signed("lease_list").json()["leases"] == []
    (closed,) = house.facts(LeaseClosed)
    assert (closed.reason, closed.operations) == ("restart", 1)
    assert code(call(agent, "s__pid")) == "consent_required"
    assert code(call(agent, "s__echo", {"kept": 1})) == ""
    assert code(call(agent, "s__echo", {"kept": 2})) == ""
    assert code(call(agent, "s__echo", {"kept": 3})) == "budget_exceeded"
    assert house.rig.cli("journal", "verify").returncode == 0


@pytest.mark.promise("P21")
@pytest.mark.parametrize("how", ["enrolled anew", "revoked"])
def test_a_former_agents_process_ends_with_it(house: Desk, how: str) -> None:
    """What it holds open, a file or a session elsewhere, is no longer anybody's."""
    agent = house.rig.enrol(f"former-{how[:3]}")
    house.lease(agent, "mail", request=asked(agent, "s__pid"))
    pid = int(text(call(agent, "s__pid")))
    assert alive(pid)
    if how == "revoked":
        assert house.signed("agent_revoke", cn=agent.cn).status_code == 200
    else:
        house.rig.enrol(agent.cn)
    until(lambda: not alive(pid))
