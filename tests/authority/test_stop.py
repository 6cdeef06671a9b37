"""The emergency stop: it needs no key, stops calls, consumes and pointers at once, and only a signature lifts it."""

from __future__ import annotations

import os

import pytest

from broker.errors import Reason
from broker.rules.authority import orders, shown
from broker.rules.authority.passage import Claimed
from broker.wire.act_records import AllStopped
from tests.authority.desk import Desk, asked, call, code
from tests.authority.table import SEND, Table
from tests.proof.cast import A, caller, operator
from tests.rig import is_miss

pytestmark = pytest.mark.promise("P20", "P21")


def stop(table: Table) -> object:
    return table.take(orders.stop_all(table.book, table.at, request=operator("stop")))


def lift(table: Table) -> object:
    return table.take(orders.lift_stop(table.book, table.at, order=table.order("stop_lift")))


def test_nothing_goes_through_while_it_is_on(table: Table) -> None:
    table.opened()
    table.done("read", call_id="one")
    table.act()
    running = table.call("list")
    assert (stop(table), stop(table)) == (True, False)
    for name in ("list", "read", "send", "note"):
        assert table.call(name, SEND) == Reason.EMERGENCY_STOP
    assert table.call("read", call_id="one") == Reason.EMERGENCY_STOP
    assert table.lease_request() == Reason.EMERGENCY_STOP
    assert shown.listed(table.book, caller(A, 1)) == []
    assert table.end(running) == "done", "what was sent is recorded"
    table.restart()
    assert table.call("list") == Reason.EMERGENCY_STOP
    assert (lift(table), lift(table)) == (True, False)
    table.done("send", SEND)


def test_it_closes_no_way_to_narrow_further(table: Table) -> None:
    id = table.opened()
    request = table.asked("send", SEND)
    stop(table)
    assert table.deny(request).request == request
    assert table.take(orders.release_lease(table.book, table.at, cn=A, account="mail")) is True
    assert id not in table.book.ledger.leases


def test_a_lease_goes_on_ending_while_it_is_on(table: Table) -> None:
    table.opened()
    table.done("read")
    stop(table)
    table.later(90)
    lift(table)
    assert not isinstance(table.call("read"), Claimed)


def test_through_the_doors(own_house: Desk) -> None:
    house = own_house
    agent = house.rig.enrol("stopped")
    house.approve(asked(agent, "s__echo", {"stop": 1}))
    id = house.rig.send("stopped")
    assert house.rig.post("/stop", {}).json() == {"stopped": True}
    assert house.rig.post("/stop", {}).json() == {"stopped": False}
    assert [fact.caller for fact in house.facts(AllStopped)] == [f"uid:{os.geteuid()}"], "who, since nobody signs"
    assert code(call(agent, "s__echo", {"stop": 1})) == "emergency_stop"
    assert code(call(agent, "s__look", {"paths": []})) == "emergency_stop"
    assert is_miss(agent.consume(id))
    assert agent.get("/tools").json() == {"tools": []}
    sent = house.say({"cn": "stopped", "generation": 1}, house.rig.statement().action)
    assert sent.json()["delivered"] is False, "no pointer leaves"
    assert house.rig.post("/admin/stop_lift", {}).status_code == 400, "not without a signature"
    unsigned = {"envelope": "e30=", "signature": "e30="}
    assert house.rig.post("/admin/stop_lift", unsigned).status_code == 400
    assert house.reached() == []
    house.rig.kill()
    house.rig.start()
    agent.close()
    assert code(call(agent, "s__echo", {"stop": 1})) == "emergency_stop", "a restart does not lift it"
    assert house.signed("stop_lift").json() == {"lifted": True}
    assert code(call(agent, "s__echo", {"stop": 1})) == ""
    assert agent.consume(id).status_code == 200
