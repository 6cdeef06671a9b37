"""Settled requests in an agent's inbox: asked for, told apart from directives, to a person and to a model."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner

from broker.wire import answers, directive_tools, pointer
from broker.wire.names import DirectiveId, Instant
from broker.wire.pointer import About
from lever.agent.folder import IdentityFolder
from lever.agent.mcp.calls import Desk
from lever.cli import main
from tests.fakes.fake_broker import FakeBroker

AT = Instant(1_767_225_600_000_000)
TOLD = {"notified_at": "2026-01-01T00:00:00Z"}
BOTH = {"pointers": [{"id": "d-1", **TOLD}], "requests": [{"id": "r-1", **TOLD}]}


@pytest.fixture
def told(broker: FakeBroker) -> FakeBroker:
    raw = answers.pointers([(DirectiveId("d-1"), AT)], [(DirectiveId("r-1"), AT)])
    broker.answers["/inbox"] = (200, raw, {})
    return broker


def test_the_command_prints_each_ones_own_sentence(told: FakeBroker, enrolled: IdentityFolder) -> None:
    words = ["agent", "inbox", "--identity", str(enrolled.path)]
    said = CliRunner().invoke(main, words).stdout.splitlines()
    assert said == [pointer.sentence(DirectiveId("d-1")), pointer.sentence(DirectiveId("r-1"), About.REQUEST)]
    assert json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout) == BOTH
    assert told.calls[-1].path == "/inbox?requests=1"


def test_a_model_sees_two_lists_as_its_tool_says(told: FakeBroker, enrolled: IdentityFolder) -> None:
    none: Any = None
    now = Instant(time.time_ns() // 1000)
    found = Desk(enrolled, lambda: now, str, none).answer(directive_tools.Inbox(0))
    assert found == BOTH
    (tool,) = (tool for tool in directive_tools.TOOLS if tool["name"] == "directive_inbox")
    assert tool["outputSchema"]["properties"].keys() == found.keys()
    assert tool["outputSchema"]["required"] == ["pointers"]
