"""What an agent tries through the real door: other spellings, other names, lists that promise, tools that change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.wire.act_records import CallClaimed, LeaseOpened, RequestOpened, ToolChanged
from tests.authority.desk import READ, Desk, asked, call, code, sent, text, wide_policy
from tests.proof.cast import digest
from tests.rig import Agent


def raw(agent: Agent, body: str) -> Any:
    """A call whose very bytes the test gives."""
    with agent.client() as client:
        return client.post("/tools/call", content=body.encode(), headers={"content-type": "application/json"})


@pytest.fixture(scope="module")
def agent(house: Desk) -> Agent:
    return house.rig.enrol("evader")


@pytest.mark.promise("P36")
def test_upstream_gets_the_frozen_arguments_and_not_the_callers_message(house: Desk, agent: Agent) -> None:
    spelt = '{"name":"s__echo", "arguments":{ "z":1.0, "a":"\\u00e9", "n":1e2, "f":0.10, "b":{"y":null,"x":true} }}'
    asking = raw(agent, spelt).json()
    assert house.approve(asking["structuredContent"]["request_id"]).status_code == 200
    line = text(raw(agent, spelt).json())
    assert sent(raw_result(line)) == {"a": "é", "b": {"x": True, "y": None}, "f": 0.1, "n": 100, "z": 1}
    assert '"arguments":{"a":"é","b":{"x":true,"y":null},"f":0.1,"n":100,"z":1}' in line, "in their one form"
    assert json.loads(line)["params"].keys() <= {"name", "arguments", "_meta"}


def raw_result(line: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": line}]}


@pytest.mark.promise("P36", "P20")
@pytest.mark.parametrize("body", [
    '{"name":"s__echo","arguments":{"n":1,"n":2}}', '{"name":"s__echo","arguments":{"n":1,"\\u006e":2}}',
    '{"name":"s__echo","arguments":{"n":1,"N":2}}', '{"name":"s__echo","name":"s__pid","arguments":{}}',
    '{"name":"s__echo","arguments":{"n":NaN}}', '{"name":"s__echo","arguments":{},"more":9007199254740993}',
    '{"name":"s__echo","arguments":{}} x', '{"name":"s__echo"}', '{"name":"s__echo","arguments":{},"more":1}',
    '{"name":"s__echo","arguments":{},"wait_s":31}', '{"name":"s__echo","arguments":{},"wait_s":true}',
    '{"name":"s__echo","arguments":{},"call_id":""}', '{"name":"s__echo","arguments":{},"call_id":"a b"}',
    '{"name":1,"arguments":{}}', "[]", '{"name":"s__echo","arguments":{"a":"\\ud800"}}',
])  # fmt: skip
def test_a_body_that_could_be_read_in_two_ways_is_refused(house: Desk, agent: Agent, body: str) -> None:
    before = len(house.facts(RequestOpened))
    assert raw(agent, body).status_code == 400
    assert len(house.facts(RequestOpened)) == before


@pytest.mark.promise("P19", "P22")
@pytest.mark.parametrize("name", [
    "s__ECHO", "S__echo", "s.echo", "echo", "s__echo ", " s__echo", "s____echo", "s__echo__x", "s__", "__echo",
    "s__ech\u043e", "s__echo\u200b", "s_echo", "other__echo", "s__s__echo", "s__../echo", "lease__request",
])  # fmt: skip
def test_no_other_spelling_of_a_name_is_that_tool(house: Desk, agent: Agent, name: str) -> None:
    before = len(house.facts(CallClaimed))
    assert code(call(agent, name)) == "unknown_tool"
    assert len(house.facts(CallClaimed)) == before


@pytest.mark.promise("P20")
@pytest.mark.parametrize("arguments", ["text", [1], 1, None, True])
def test_arguments_that_are_no_object_are_refused(agent: Agent, arguments: Any) -> None:
    answer = agent.post("/tools/call", {"name": "s__echo", "arguments": arguments})
    assert code(answer.json()) == "invalid_arguments"


@pytest.mark.promise("P20")
def test_an_agent_cannot_answer_its_own_request(house: Desk, agent: Agent) -> None:
    request = asked(agent, "s__echo", {"own": 1})
    for route in ("/admin/request_deny", "/directive/send", "/stop", "/usage", "/admin/policy_apply", "/request"):
        assert agent.post(route, {"id": request}).status_code == 404
    house.rig.key.chmod(0o600)
    value = {"cn": agent.cn, "generation": 1}
    assert agent.post("/directive/send", {"statement": "", "target": value}).status_code == 404
    assert code(call(agent, "s__echo", {"own": 1})) == "consent_required"


@pytest.mark.promise("P20")
@pytest.mark.parametrize("field", ["account", "resources", "args_digest", "tool_digest", "op", "tool", "request_id"])
def test_an_approval_of_which_one_field_is_another_is_refused(house: Desk, agent: Agent, field: str) -> None:
    values = {
        "account": "other", "resources": ("id:1",), "args_digest": digest("other"), "tool_digest": digest("other"),
        "op": "pid", "tool": "q", "request_id": "0" * 32,
    }  # fmt: skip
    answer = house.approve(asked(agent, "s__echo", {"bound": 1}), **{field: values[field]})
    assert answer.status_code == 409, answer.text
    assert code(call(agent, "s__echo", {"bound": 1})) == "consent_required"


@pytest.mark.promise("P20", "P12")
def test_a_key_that_is_taken_out_cancels_what_it_signed(house: Desk) -> None:
    agent, rig = house.rig.enrol("keyed"), house.rig
    house.approve(asked(agent, "s__echo", {"key": 1}))
    lines = rig.allowed_signers.read_text()
    kept = rig.second_key.with_suffix(".pub").read_text().split()[1]
    rig.allowed_signers.write_text("".join(line + "\n" for line in lines.splitlines() if kept in line))
    try:
        assert code(call(agent, "s__echo", {"key": 1})) == "consent_required"
    finally:
        rig.allowed_signers.write_text(lines)
    assert code(call(agent, "s__echo", {"key": 1})) == "consent_required", "and it does not come back"
    assert [row["state"] for row in house.acts().values() if row["agent"]["cn"] == "keyed"] == ["invalidated"]


@pytest.mark.promise("P20", "P37")
def test_a_signed_call_of_a_denied_tool_is_refused_at_send(house: Desk, agent: Agent) -> None:
    for tool, reason in (("stuck", "denied_by_rule"), ("child", "denied_by_default")):
        answer = house.tool_call(agent, tool, {})
        assert (answer.status_code, answer.json()["reason"]) == (409, reason)


@pytest.mark.promise("P26")
def test_listing_is_no_authority(house: Desk) -> None:
    agent = house.rig.enrol("lister")

    def listed() -> set[str]:
        return {tool["name"] for tool in agent.get("/tools").json()["tools"]}

    assert {"s__look", "s__echo", "s__pid", "request_status"} <= listed()
    assert "s__stuck" not in listed()
    assert code(call(agent, "s__look", {"paths": []})) == ""
    tiers = {"allowed": ["s.pid"], "approval_required": [], "denied": ["s.look"]}
    house.apply(wide_policy(tool_allowlist=tiers), scope="agent/lister")
    assert code(call(agent, "s__look", {"paths": []})) == "denied_by_rule", "listed a moment ago"
    assert code(call(agent, "s__echo", {})) == "denied_by_default"
    assert "s__look" not in listed()
    house.apply(wide_policy(), scope="agent/lister")
    assert code(call(agent, "s__look", {"paths": []})) == "", "whatever a list said in between"


@pytest.mark.promise("P22")
def test_a_tool_that_changes_between_list_and_call_is_shut(own_house: Desk) -> None:
    house = own_house
    agent = house.rig.enrol("changed")
    house.approve(asked(agent, "s__echo", {"n": 1}))
    assert code(call(agent, "s__look", {"paths": []})) == ""
    (house.beside / "words").write_text('{"Does echo.": "Does echo, and more."}')
    assert code(call(agent, "s__changed")) == ""  # the server says so
    assert code(call(agent, "s__echo", {"n": 1})) == "tool_changed"
    assert [fact.tool for fact in house.facts(ToolChanged)] == ["echo"]
    assert [row["state"] for row in house.acts().values()] == ["invalidated"]
    assert code(call(agent, "s__look", {"paths": []})) == "", "the others are as they were"
    (house.beside / "words").unlink()
    house.rig.kill()
    house.rig.start()
    agent.close()
    assert code(call(agent, "s__echo", {"n": 1})) == "tool_changed", "what changed stays shut until it is accepted"
    assert house.accept().status_code == 200
    assert code(call(agent, "s__echo", {"n": 1})) == "consent_required"
    assert house.reached("echo") == []


@pytest.mark.promise("P21")
def test_minutes_are_taken_as_what_they_can_shorten(house: Desk) -> None:
    agent = house.rig.enrol("minutes")
    for bad in (0, -1, 1.5, True, "5"):
        assert code(call(agent, "lease_request", {"account": "mail", "minutes": bad})) != "consent_required"
    told = call(agent, "lease_request", {"account": "mail", "minutes": 1})["structuredContent"]
    assert (told["code"], told["deprecated"], told["effective_seconds"]) == ("consent_required", "minutes", 60)
    house.lease(agent, "mail", request=told["request_id"])
    assert house.facts(LeaseOpened)[-1].seconds == 60
    assert code(call(agent, "s__pid")) == ""
    for closed in (True, False):
        assert call(agent, "lease_release", {"account": "mail"})["structuredContent"]["closed"] is closed
    told = call(agent, "lease_request", {"account": "mail", "minutes": 1440})["structuredContent"]
    assert told["effective_seconds"] == 90
    assert code(call(agent, "lease_request", {"account": "nobody's"})) == "unknown_account"


@pytest.mark.promise("P20")
def test_an_answer_that_was_taken_back_is_told_as_that(house: Desk, agent: Agent) -> None:
    request = call(agent, "s__echo", {"to": "be taken back"})["structuredContent"]["request_id"]
    act = house.approve(request).json()["id"]
    assert call(agent, "request_status", {"request_id": request})["structuredContent"]["state"] == "approved"
    assert house.signed("act_revoke", id=act).json() == {"revoked": True}
    assert call(agent, "request_status", {"request_id": request})["structuredContent"]["state"] == "revoked"


@pytest.mark.promise("P20")
def test_a_request_is_told_to_its_agent_alone(house: Desk, agent: Agent) -> None:
    request = asked(agent, "s__echo", {"mine": 1})
    other = house.rig.enrol("nosy")
    assert code(call(other, "request_status", {"request_id": request})) == "not_found"
    told = call(agent, "request_status", {"request_id": request})["structuredContent"]
    assert told["state"] == "pending"
    house.signed("request_deny", id=request, note="no")
    told = call(agent, "request_status", {"request_id": request})["structuredContent"]
    assert (told["state"], told["operator_note"]) == ("denied", "no")


@pytest.mark.promise("P19")
@pytest.mark.parametrize("change", [
    {"default_action": "allow"}, {"tool_allowlist": {"allowed": ["echo"], "approval_required": [], "denied": []}},
    {"tool_allowlist": {"allowed": ["s.pid"], "approval_required": ["s.pid"], "denied": []}},
    {"tools": {"s.pid": READ | {"consent": "nothing"}}}, {"acounts": {}},
])  # fmt: skip
def test_a_policy_with_a_mistake_is_refused_whole_and_the_old_one_stays(
    house: Desk, agent: Agent, change: dict[str, Any]
) -> None:
    attached = json.dumps(wide_policy(**change), sort_keys=True, separators=(",", ":")).encode()
    assert house.signed("policy_apply", attached, scope="instance").status_code == 400
    assert code(call(agent, "s__look", {"paths": []})) == ""
    assert code(call(agent, "s__stuck")) == "denied_by_rule"
