"""The fake does what servers made by others do, as far as a caller who asks for nothing bad can see."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker import offline
from broker.config import Sandbox
from broker.effects.tool_servers import Done, Failed, Outcome
from tests.tool_servers.conftest import Make
from tests.tool_servers.setting import FAKE, ROOT, A, AServer, alive, children, looked, sent, until

BIN = Path(sys.executable).parent
POLICIES = Path(__file__).parents[2] / "docs" / "policies"
PYTHON = (sys.executable, "-m", "tests.fakes.sdk_tool_server")
SERVERS = {"fake": (sys.executable, "-S", str(FAKE)), "sdk": PYTHON}
GIT, TIME = BIN / "mcp-server-git", BIN / "mcp-server-time"
real = pytest.mark.skipif(
    not (GIT.exists() and TIME.exists()), reason="mcp-server-git and mcp-server-time: not installed"
)


async def exchange(
    make: Make, command: Sequence[str], well: tuple[str, bytes], wrongly: tuple[str, bytes]
) -> tuple[Any, Outcome, Outcome]:
    """Listed, called well and called wrongly; then stopped."""
    before = children()
    servers = make({"s": AServer(command=tuple(command))}, folder=ROOT)
    listed = (await looked(servers)).tools
    good, bad = [await sent(servers, A, "s", *words, 30) for words in (well, wrongly)]
    pids = children() - before
    assert len(pids) == (2 if sys.platform == "linux" else 1), "it, and its keeper"
    await servers.stop()
    await until(lambda: not any(map(alive, pids)))
    return listed, good, bad


@pytest.mark.parametrize("name", SERVERS)
async def test_listed_called_and_called_wrongly(make: Make, name: str) -> None:
    listed, good, bad = await exchange(make, SERVERS[name], ("echo", b'{"n":1}'), ("fails", b"{}"))
    assert all(tool.definition["inputSchema"] == {"type": "object"} for tool in listed.values())
    assert isinstance(good, Done)
    (content,) = json.loads(good.result)["content"]
    assert content["type"] == "text"
    assert '"n":' in content["text"]
    assert isinstance(bad, Failed)


@real
async def test_a_git_server_of_others(make: Make, tmp_path: Path) -> None:
    """In its sandbox: it sees the one repository."""
    subprocess.run(["git", "init", "-q", "-b", "trunk", tmp_path / "repo"], check=True)
    libraries = (Path(sys.prefix), Path(sys.base_prefix))
    sandbox = Sandbox.model_construct(read=libraries, write=(tmp_path / "repo",), network=False)
    servers = make({"s": AServer(command=(str(GIT),), sandbox=sandbox)})
    there = (await looked(servers)).tools
    starting = offline.load_policy(POLICIES / "developer.yaml")
    named = {name.partition(".")[2] for name in starting.tools if name.startswith("git.")}
    assert named
    assert named <= there.keys(), "the policy to start from fits the server that the README names"
    where = {"repo_path": str(tmp_path / "repo")}
    good = await sent(servers, A, "s", "git_status", json.dumps(where).encode(), 30)
    assert isinstance(good, Done)
    assert "On branch trunk" in json.loads(good.result)["content"][0]["text"]
    bad = await sent(servers, A, "s", "git_status", b'{"repo_path":"/nowhere"}', 30)
    assert isinstance(bad, Failed)


@real
async def test_a_time_server_of_others(make: Make) -> None:
    given = b'{"source_timezone":"Europe/Paris","target_timezone":"Asia/Tokyo","time":"12:00"}'
    wrong = given.replace(b"Paris", b"Atlantis")
    listed, good, bad = await exchange(make, (str(TIME),), ("convert_time", given), ("convert_time", wrong))
    assert [*listed] == ["get_current_time", "convert_time"]
    assert isinstance(good, Done)
    assert "Asia/Tokyo" in good.result.decode()
    assert isinstance(bad, Failed)
