"""A filesystem server made by others, in its sandbox, under rules on its paths: words, links and what they lead to."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.authority.desk import Desk, a_policy, asked, call, code, desk
from tests.rig import Agent

FILES = Path(sys.executable).parent / "filesystem-mcp"
pytestmark = [
    pytest.mark.skipif(not FILES.exists(), reason="filesystem-mcp is not installed"),
    pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed"),
]
TOOLS = ("list_directory", "read_file", "write_file")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Desk, Agent]]:
    """A folder with `open`, of which the rules speak, and `shut`; beside it, what the sandbox does not show."""
    folder = tmp_path_factory.mktemp("files")
    work = folder / "work"
    for name in ("work/open/a.txt", "work/shut/b.txt", "work/open2/c.txt", "beside/secret"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"in {name}")
    for name, target in (("out", folder / "beside/secret"), ("new", folder / "beside/made"), ("in", "../shut/b.txt")):
        (work / "open" / name).symlink_to(target)
    read = f"[{Path(sys.prefix).resolve()}, {Path(sys.base_prefix).resolve()}]"
    made = desk(
        folder / "instance",
        f"\nservers:\n  files: {{command: [{FILES}, {work}], sandbox: {{read: {read}, write: [{work}]}}}}\n",
    )
    path = {"resources": [{"pointer": "/path", "kind": "path"}]}
    rule = {"rules": [{"pointer": "/path", "prefix": str(work / "open")}]}
    tiers = {"allowed": ["files.list_directory", "files.read_file"], "approval_required": ["files.write_file"]}
    classes = {"list_directory": "read", "read_file": "read", "write_file": "mutation"}
    tools = {f"files.{name}": {"class": classes[name], **path, **rule} for name in TOOLS}
    assert made.apply(a_policy(tool_allowlist=tiers | {"denied": []}, tools=tools, accounts={})).status_code == 200
    assert made.accept("files", *TOOLS).status_code == 200
    yield work, made, made.rig.enrol("worker-a")
    made.rig.close()


def told(result: dict[str, Any]) -> Any:
    assert not result.get("isError"), result
    return json.loads(result["content"][0]["text"])


def test_what_the_rules_let_through_is_read_and_written_as_it_was_signed(files: tuple[Path, Desk, Agent]) -> None:
    work, office, agent = files
    assert told(call(agent, "files__read_file", {"path": f"{work}/open/a.txt"}))["content"] == "in work/open/a.txt"
    listed = told(call(agent, "files__list_directory", {"path": f"{work}/open/"}))["entries"]
    assert "a.txt" in {entry["name"] for entry in listed}
    write = {"path": f"{work}/open/made.txt", "content": "é\n" * 3}
    assert office.approve(asked(agent, "files__write_file", write)).status_code == 200
    assert code(call(agent, "files__write_file", write | {"content": "other"})) == "consent_required"
    assert told(call(agent, "files__write_file", write))["bytes_written"] == 9
    assert (work / "open/made.txt").read_text() == write["content"]
    assert code(call(agent, "files__list_allowed_directories")) == "unknown_tool", "it was never accepted"


NOT_BELOW = [
    "{work}/open/../shut/b.txt", "{work}/open/./a.txt", "{work}/open//a.txt", "{work}/open2/c.txt", "{work}/shut/b.txt",
    "{work}/OPEN/a.txt", "{work}/open\\..\\shut\\b.txt", "{work}/open/%2e%2e/shut/b.txt", "~/secret", "open/a.txt",
    "{work}/open/a.txt\u200b", "{work}/open/a.txt\x00", "{work}/open/\uff0e\uff0e/shut/b.txt", "",
    "file://{work}/open/a.txt", "/proc/self/root{work}/open/a.txt",
]  # fmt: skip


@pytest.mark.promise("P19")
def test_a_path_that_is_not_below_the_prefix_word_by_word_never_reaches_the_server(
    files: tuple[Path, Desk, Agent],
) -> None:
    work, office, agent = files

    def requests() -> list[str]:
        return [row["request"] for row in office.signed("request_list").json()["requests"]]

    before = requests()
    for path in NOT_BELOW:
        for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
            result = call(agent, f"files__{name}", {"path": path.replace("{work}", str(work)), **more})
            assert code(result) in ("denied_by_argument", "ambiguous_operand"), (path, result)
    assert requests() == before, "and nobody was asked about it"


def test_no_second_argument_is_smuggled_past_the_rule(files: tuple[Path, Desk, Agent]) -> None:
    work, _, agent = files
    inside = {"path": f"{work}/open/a.txt"}
    for wrong in ({**inside, "file": f"{work}/shut/b.txt"}, {**inside, "path": [f"{work}/open/a.txt"]}, {}):
        assert code(call(agent, "files__read_file", wrong)) == "invalid_arguments"


def test_a_link_leads_no_further_than_the_sandbox_shows(files: tuple[Path, Desk, Agent]) -> None:
    """To the rule a link is a name below the prefix; to the server a way to what it may see, and to nothing else."""
    work, office, agent = files
    out = call(agent, "files__read_file", {"path": f"{work}/open/out"})
    assert out["isError"]
    assert "beside/secret" not in json.dumps(out).replace(str(work.parent / "beside/secret"), "")
    write = {"path": f"{work}/open/new", "content": "it got out"}
    assert office.approve(asked(agent, "files__write_file", write)).status_code == 200
    assert call(agent, "files__write_file", write)["isError"]
    assert not (work.parent / "beside/made").exists(), "the server itself would have followed it"
    within = told(call(agent, "files__read_file", {"path": f"{work}/open/in"}))
    assert within["content"] == "in work/shut/b.txt", "docs/operating/tool-servers.md says so"
