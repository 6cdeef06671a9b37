"""Everything with an effect: one signature, one execution, exactly those bytes."""

from __future__ import annotations

import pytest

from tests.authority.desk import Desk, call, code, sent


@pytest.mark.promise("P20")
def test_a_signed_call_is_executed_once_and_a_second_needs_another_signature(office: Desk) -> None:
    agent = office.rig.enrol("once-a")
    asked = call(agent, "s__echo", {"b": 1, "a": "x"})
    assert code(asked) == "consent_required"
    request = asked["structuredContent"]["request_id"]
    again = call(agent, "s__echo", {"a": "x", "b": 1})
    assert again["structuredContent"]["request_id"] == request, "asked once for the same call"
    answer = office.approve(request)
    assert answer.status_code == 200, answer.text
    assert sent(call(agent, "s__echo", {"a": "x", "b": 1})) == {"a": "x", "b": 1}
    assert code(call(agent, "s__echo", {"a": "x", "b": 1})) == "consent_required"


@pytest.mark.promise("P19")
def test_a_tool_in_no_list_and_a_denied_one_are_refused(office: Desk) -> None:
    agent = office.rig.enrol("denied-a")
    assert code(call(agent, "s__child")) == "denied_by_default"
    assert code(call(agent, "s__dies")) == "denied_by_rule"
    assert code(call(agent, "s__nothing")) == "unknown_tool"
    assert code(call(agent, "nobody__echo")) == "unknown_tool"
