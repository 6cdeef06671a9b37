"""A tool call whose answer was lost: asked for again under its call_id, and told as unknown where nobody answers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from broker.errors import Malformed
from lever.agent import answers, calling
from lever.agent.door import Door
from lever.agent.failures import AgentFailure, Barred, NotReachable, RateLimited, Unverified
from lever.agent.folder import IdentityFolder
from lever.agent.session import connected
from tests.agent.setting import now
from tests.fakes.fake_broker import Call, FakeBroker

PATH = "/tools/call"
DONE = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"Id": 2**60, "id": 1.0}}
RUNNING = {"content": [], "structuredContent": {"code": "in_progress"}, "isError": True}


def says(broker: FakeBroker, result: Any, status: int = 200) -> None:
    broker.answers[PATH] = (status, json.dumps(result).encode(), {})


def called(broker: FakeBroker) -> list[Any]:
    return [call.body for call in broker.calls if call.path == PATH]


def ask(folder: IdentityFolder, slept: list[float] | None = None) -> dict[str, Any]:
    pauses: list[float] = [] if slept is None else slept
    with connected(folder, now()) as door:
        return calling.call(door, "mail__send", {"b": 1.0, "a": "é"}, "key-1", 5, sleep=pauses.append)


def test_the_call_is_sent_as_it_was_made_and_its_answer_told_as_it_is(
    broker: FakeBroker, enrolled: IdentityFolder
) -> None:
    says(broker, DONE)
    assert json.dumps(ask(enrolled)) == json.dumps(DONE), "1.0 is not 1, and any number and any keys are let through"
    sent = {"name": "mail__send", "arguments": {"b": 1.0, "a": "é"}, "call_id": "key-1", "wait_s": 5}
    assert json.dumps(called(broker)) == json.dumps([sent])


def test_a_lost_answer_is_asked_for_again_under_the_same_call_id(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    says(broker, DONE)
    broker.drops[PATH] = 2
    assert ask(enrolled) == DONE
    assert {body["call_id"] for body in called(broker)} == {"key-1"}
    assert len(called(broker)) == 3


def test_a_call_that_goes_on_without_its_line_is_waited_for(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    says(broker, RUNNING)
    broker.drops[PATH] = 1

    def settle(call: Call) -> None:
        if call.path == PATH and len(called(broker)) == 5:
            says(broker, DONE)

    broker.before = settle
    assert ask(enrolled) == DONE
    assert {body["call_id"] for body in called(broker)} == {"key-1"}
    assert sum(calling.RUNNING_S) > 300, "no call runs longer"


def test_one_that_somebody_else_runs_is_told_at_once(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    says(broker, RUNNING)
    assert ask(enrolled) == RUNNING
    assert len(called(broker)) == 1


def test_where_nobody_answers_any_more_it_is_unknown_and_can_be_asked_for(
    broker: FakeBroker, enrolled: IdentityFolder
) -> None:
    broker.drops[PATH] = 100
    with pytest.raises(NotReachable) as failed:
        ask(enrolled)
    assert failed.value.sent
    assert "unknown" in failed.value.text
    assert "do not make it anew" in failed.value.hint
    assert "--call-id key-1" in failed.value.hint
    assert len(called(broker)) == 1 + len(calling.PAUSES_S)


@pytest.mark.parametrize(("status", "failure"), [(403, Barred), (429, RateLimited), (400, Unverified)])
def test_what_the_broker_refused_is_not_asked_again(
    broker: FakeBroker, enrolled: IdentityFolder, status: int, failure: type[AgentFailure]
) -> None:
    says(broker, {"error": "no"}, status)
    with pytest.raises(failure):
        ask(enrolled)
    assert len(called(broker)) == 1


def test_a_broker_that_is_not_there_is_told_at_once(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    broker.stop()
    slept: list[float] = []
    with pytest.raises(NotReachable) as failed:
        ask(enrolled, slept)
    assert (failed.value.sent, slept) == (False, [])


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"7", b"not json", b'{"isError":true}', b"\xff", b"[" * 100_000, b'{"content":[]} {}']
)
def test_an_answer_that_is_no_result_is_none(broker: FakeBroker, enrolled: IdentityFolder, body: bytes) -> None:
    broker.answers[PATH] = (200, body, {})
    with pytest.raises(Unverified):
        ask(enrolled)


def test_an_answer_may_be_large_and_not_without_bound(
    broker: FakeBroker, enrolled: IdentityFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(broker, {"content": [], "structuredContent": {"x": "y" * 3_000_000}})
    assert len(ask(enrolled)["structuredContent"]["x"]) == 3_000_000
    monkeypatch.setattr(answers, "MAX_RESULT_BYTES", 2_000_000)
    with pytest.raises(Unverified, match="larger than"):
        ask(enrolled)


def test_arguments_that_no_broker_takes_are_not_sent(broker: FakeBroker, enrolled: IdentityFolder) -> None:
    with connected(enrolled, now()) as door, pytest.raises(Malformed, match="more than 131072"):
        door.call("a__b", {"text": "é" * 70_000}, "key-1", 0)
    assert called(broker) == []


@pytest.mark.parametrize("body", [b'{"tools":{}}', b'{"tools":[7]}', b'{"tools":[{}]}', b"{}", b"[]"])
def test_a_list_of_tools_that_is_none(broker: FakeBroker, enrolled: IdentityFolder, body: bytes) -> None:
    broker.answers["/tools"] = (200, body, {})
    with connected(enrolled, now()) as door, pytest.raises(Unverified):
        door.tools()


def test_a_broker_waits_for_its_slow_server_longer_than_for_anything_else(
    broker: FakeBroker, enrolled: IdentityFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(broker, DONE)
    broker.before = lambda call: time.sleep(0.5 if call.path == PATH else 0)
    with connected(enrolled, now()) as door:
        monkeypatch.setattr(door, "_read_s", 0.1)
        assert isinstance(door, Door)
        assert door.call("a__b", {}, "key-1", 0) == DONE
