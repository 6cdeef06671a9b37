"""Policy files and files of expected decisions: every mistake with its line; the files in docs/policies."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.config import ConfigError, expected_file, policy_file
from broker.rules.authority.expected import consider, outcome
from broker.rules.authority.warnings import warnings
from broker.wire import policy
from broker.wire.names import Cn
from broker.wire.notes import Notes
from tests.vectors.policy_files import GOOD

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(path for path in (ROOT / "docs" / "policies").glob("*.yaml") if "expected" not in path.name)


def told(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "policy.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        policy_file.load(path)
    assert caught.value.hint
    return [line.removeprefix(f"{path}:") for line in caught.value.lines]


def test_every_mistake_is_told_at_once_in_order(tmp_path: Path) -> None:
    text = GOOD.replace("files.read", "read").replace("name: demo", "name: Demo") + "x: 1\ny: &a 2\n"
    assert [line.split(": ")[0] for line in told(tmp_path, text)] == ["2:7", "5:13", "8:1", "9:1", "9:4"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="no such file"):
        policy_file.load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="regular file"):
        policy_file.load(tmp_path / "pipe")


def test_a_file_is_the_same_policy_however_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD)
    other = tmp_path / "b.yaml"
    lines = GOOD.replace("[files.read]", "\n    - files.read  # why").splitlines()
    other.write_text("\n".join([*lines[3:], *lines[:3]]) + "\n")
    assert policy_file.load(path) == policy_file.load(other) == policy.parse(policy_file.load(path).raw)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_starting_policies_do_as_is_expected_deny_deletion_and_need_no_figures(path: Path) -> None:
    told = [*warnings(policy_file.load(path))]
    assert not [text for text in told if "not denied by rule" in text or "needs figures" in text]
    found = expected_file.load(path.with_suffix("").with_suffix(".expected.yaml"))
    for case in found.cases:
        judged = consider(found.tools, found.layers, case.agent, case.tool, case.arguments)
        assert outcome(judged) == case.expect, (case, judged.steps)


def keys_of_every_block(monkeypatch: pytest.MonkeyPatch, path: Path) -> set[str]:
    """The keys that the reader knows, as it reads a file that has every block."""
    keys: set[str] = set()
    read = Notes.fields

    def fields(notes: Notes, value: Any, at: Any, required: Sequence[str], optional: Sequence[str]) -> Any:
        keys.update(required, optional)
        return read(notes, value, at, required, optional)

    monkeypatch.setattr(Notes, "fields", fields)
    policy_file.load(path)
    return keys


def test_the_commented_policy_and_its_page_name_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "docs" / "policies" / "policy.yaml"
    text, page = path.read_text(), (ROOT / "docs" / "formats" / "policy.md").read_text()
    keys = keys_of_every_block(monkeypatch, path)
    assert keys >= {"v", "allowed", "reviewed", "kind", "otherwise", "sensitive", "max_cost_cents"}, "of each block"
    reported = {"max_input_tokens", "max_output_tokens", "max_cost_cents"}  # as comments: not everybody has a proxy
    assert reported <= set(re.findall(r"# ([a-z_]+): [0-9]", text))
    assert keys - reported <= set(re.findall(r"\b([a-z_]+):(?= |$)", re.sub(r"#.*", "", text), re.MULTILINE))
    assert not [key for key in keys if f"`{key}`" not in page and f".{key}`" not in page]


CASES = "policies: [policy.yaml]\ncases:\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("policies: [policy.yaml]\n", "1:1: expected the key `cases`, which is missing"),
        ("policies: []\ncases: [{tool: a.b, expect: act}]\n", "1:11: expected at least one entry"),
        (CASES + "  - {tool: files.read, expect: allow}\n", "3:32: expected one of automatic, lease, act"),
        (CASES + "  - {tool: files.read}\n", "3:5: expected the key `expect`, which is missing"),
        (CASES + "  - {tool: files.read, expect: act, args: {}}\n", '3:37: unknown key "args"'),
        (CASES + "  - {tool: files.read, expect: act, agent: A}\n", "3:44: expected 1 to 63 of a-z 0-9 -"),
        (CASES + "  - {tool: files.read, expect: act, arguments: []}\n", "3:48: expected a mapping"),
        ("policies: [7]\ncases: [{tool: a.b, expect: act}]\n", "1:12: expected a file, relative to this one"),
    ],
)
def test_a_mistake_in_a_file_of_expected_decisions(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "policy.yaml").write_text(GOOD)
    path = tmp_path / "expected.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        expected_file.load(path)
    (found,) = (each.removeprefix(f"{path}:") for each in caught.value.lines)
    assert found.startswith(line)


DEFINITION = '{"name": "x", "inputSchema": {"type": "object"}}'


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("[]", "catalogue: expected an object, found an array"),
        ("{", "not one JSON value"),
        ('{"files": {}}', "files: expected an array of tool definitions"),
        ('{"files": [{}]}', r"files\[0\].name: expected 1 to 128"),
        ('{"Files": [{}]}', "expected 1 to 63 of a-z 0-9 -"),
        (f'{{"a": [{DEFINITION}, {DEFINITION}]}}', r"a\[1\].name: expected each tool once"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_catalogue(tmp_path: Path, raw: str, why: str) -> None:
    (tmp_path / "tools.json").write_text(raw)
    with pytest.raises(ConfigError, match=why):
        expected_file.load_catalogue(tmp_path / "tools.json")


def test_with_a_catalogue_a_tool_that_is_not_in_it_is_unknown() -> None:
    tools = expected_file.load_catalogue(ROOT / "docs" / "policies" / "catalogue.json")
    layers = [policy_file.load(ROOT / "docs" / "policies" / "policy.yaml")]
    assert outcome(consider(tools, layers, Cn("a"), "files.read_files", {})) == "unknown_tool"
