"""What a tool server said, in the SDK's types: as it is where a revision has room for it, and never lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types.methods import serialize_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from broker.wire import directive_tools, mcp_shapes

OLDER, NEWER = LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
TEXT = {"type": "text", "text": "hello"}
OBJECT = {"type": "object"}


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(levels - 1):
        inner = {"a": inner}
    return inner


def sent(result: Any, version: str, method: str = "tools/call") -> dict[str, Any]:
    """As it leaves."""
    dumped = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return serialize_server_result(method, version, {"resultType": "complete", **dumped})


@pytest.mark.parametrize("version", [OLDER, NEWER])
@pytest.mark.parametrize(
    "result",
    [
        {"content": [TEXT], "isError": True},
        {"content": [], "structuredContent": {"z": None, "a": 1.5, "n": 2**60, "list": [None, {"q": None}]}},
        {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "isError": False},
        {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}], "structuredContent": nested(100)},
    ],
)
def test_a_result_is_told_as_it_is(result: dict[str, Any], version: str) -> None:
    told = sent(mcp_shapes.result(result, version), version)
    assert {name: told[name] for name in result} == result
    assert list(told.get("structuredContent", {})) == list(result.get("structuredContent", {}))


@pytest.mark.parametrize(
    ("version", "result"),
    [
        (OLDER, {"content": [TEXT], "structuredContent": [1, 2]}),
        (NEWER, {"content": [{"type": "hologram", "data": "AA=="}]}),
        (OLDER, {"content": [{"type": "hologram", "data": "AA=="}], "isError": True}),
        (NEWER, {"content": "none"}),
        (NEWER, {"content": [], "structuredContent": nested(130)}),
        (NEWER, {"content": [], "structuredContent": nested(900)}),
    ],
)
def test_a_result_that_a_revision_has_no_room_for_is_told_as_its_text(version: str, result: dict[str, Any]) -> None:
    told = sent(mcp_shapes.result(result, version), version)
    assert json.loads(told["content"][0]["text"]) == result
    assert told["isError"] is result.get("isError", False)


def test_a_result_of_another_kind_of_structure_is_for_the_newer_revision_as_it_is() -> None:
    assert sent(mcp_shapes.result({"content": [], "structuredContent": [1]}, NEWER), NEWER)["structuredContent"] == [1]


@pytest.mark.parametrize("version", [OLDER, NEWER])
@pytest.mark.parametrize(
    "spoilt",
    [
        {"name": "a", "inputSchema": OBJECT, "annotations": {"title": 7}},
        {"name": "a", "inputSchema": nested(200) | OBJECT},
        {"name": "a"},
    ],
)
def test_a_tool_that_a_revision_has_no_room_for_spoils_no_list(version: str, spoilt: dict[str, Any]) -> None:
    told = mcp_shapes.tools([*directive_tools.TOOLS, spoilt], version)
    assert [tool.name for tool in told] == list(directive_tools.NAMES)


def test_an_output_that_is_no_object_is_left_out_of_the_older_revision() -> None:
    tool = {"name": "a", "inputSchema": OBJECT, "outputSchema": {"type": "array"}}
    (older,), (newer,) = (mcp_shapes.tools([tool], version) for version in (OLDER, NEWER))
    assert (older.name, older.output_schema, newer.output_schema) == ("a", None, {"type": "array"})


@pytest.mark.parametrize("version", [OLDER, NEWER])
def test_a_server_does_not_answer_in_the_gateways_name(version: str) -> None:
    result = {"content": [TEXT], "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "other"}, "a/b": 1}}
    assert mcp_shapes.told(result, version)["_meta"] == {"a/b": 1}
