"""Tool servers made by others, behind the broker, called by official clients: a harness's, and one at /mcp itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.authority.desk import Desk, a_policy, desk
from tests.fakes import sdk_tool_server
from tests.mcp import test_http
from tests.mcp.conftest import Beside, text_of
from tests.mcp.test_brokered import refused
from tests.mcp.test_stdio import connected

BIN = Path(sys.executable).parent
GIT, TIME = BIN / "mcp-server-git", BIN / "mcp-server-time"
pytestmark = pytest.mark.skipif(
    not (GIT.exists() and TIME.exists()), reason="mcp-server-git and mcp-server-time: not installed"
)
WHO = ("-c", "user.name=Mara", "-c", "user.email=mara@example.org", "-c", "commit.gpgsign=false")


def git(repository: Path, *words: str) -> str:
    argv = ["git", "-C", str(repository), *WHO, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One commit, and a file that is staged."""
    made = tmp_path_factory.mktemp("git") / "repo"
    subprocess.run(["git", "init", "-q", "-b", "trunk", made], check=True)
    for name, value in (("user.name", "Mara"), ("user.email", "mara@example.org")):
        git(made, "config", name, value)
    git(made, "commit", "-q", "--allow-empty", "-m", "The first")
    (made / "a.txt").write_text("hello\n")
    git(made, "add", "a.txt")
    return made


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """The URL of a server that is reached over HTTP."""
    with sdk_tool_server.over_http(json_response=False) as url:
        yield url


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, repository: Path, web: str) -> Iterator[tuple[Desk, Beside]]:
    """Looking is free, a commit is asked for, and what undoes work is denied."""
    tmp_path = tmp_path_factory.mktemp("real")
    read = f"[{Path(sys.prefix).resolve()}, {Path(sys.base_prefix).resolve()}]"
    servers = f"""
servers:
  time: {{command: [{TIME}], sandbox: {{read: {read}}}}}
  git: {{command: [{GIT}], sandbox: {{read: {read}, write: [{repository}]}}}}
  web: {{url: "{web}"}}
"""
    reads = ["time.convert_time", "git.git_status", "git.git_log", "web.echo", "web.session"]
    tiers = {"allowed": reads, "approval_required": ["git.git_commit"], "denied": ["git.git_reset"]}
    made = desk(tmp_path / "instance", servers)
    try:
        tools = {**{name: {"class": "read"} for name in reads}, "git.git_commit": {"class": "mutation"}}
        assert made.apply(a_policy(tool_allowlist=tiers, tools=tools, accounts={})).status_code == 200
        for server in ("time", "git", "web"):
            answer = made.accept(server)
            assert answer.status_code == 200, answer.text
        beside = Beside(made.rig, "worker-a", tmp_path / "identity")
        beside.enrol()
        yield made, beside
    finally:
        made.rig.close()


async def test_an_agent_reads_as_it_likes_and_commits_what_the_operator_signed(
    real: tuple[Desk, Beside], repository: Path
) -> None:
    office, beside = real
    where = {"repo_path": str(repository)}
    async with connected(beside) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"time__convert_time", "git__git_status", "git__git_commit"} <= listed.keys()
        assert "git__git_reset" not in listed
        assert "repo_path" in listed["git__git_commit"].input_schema["properties"]
        told = {"source_timezone": "Europe/Paris", "target_timezone": "Asia/Tokyo", "time": "12:00"}
        assert "Asia/Tokyo" in text_of(await client.call_tool("time__convert_time", told))
        assert "a.txt" in text_of(await client.call_tool("git__git_status", where))

        commit = {**where, "message": "Add a.txt: é, 2^53"}
        request = refused(await client.call_tool("git__git_commit", commit), "consent_required")["request_id"]
        assert office.approve(request).status_code == 200
        changed = await client.call_tool("git__git_commit", {**commit, "message": "Something else"})
        refused(changed, "consent_required")
        done = await client.call_tool("git__git_commit", commit)
        assert not done.is_error, text_of(done)
        refused(await client.call_tool("git__git_commit", commit), "consent_required")
        refused(await client.call_tool("git__git_reset", where), "denied_by_rule")
        refused(await client.call_tool("git__git_commit", {**where, "message": 7}), "invalid_arguments")
        wrong = await client.call_tool("git__git_log", {"repo_path": "/"})
        assert wrong.is_error
    assert git(repository, "log", "--format=%s").splitlines() == ["Add a.txt: é, 2^53", "The first"]


async def test_the_official_client_reaches_servers_of_both_kinds_at_the_door_itself(real: tuple[Desk, Beside]) -> None:
    one, other = [real[0].rig.enrol(name) for name in ("worker-b", "worker-c")]
    told = {"source_timezone": "Europe/Paris", "target_timezone": "Asia/Tokyo", "time": "12:00"}
    words = {"é": [1, 2**53 - 1, "\u2028"]}
    async with test_http.connected(one) as client, test_http.connected(other) as another:
        assert "Asia/Tokyo" in text_of(await client.call_tool("time__convert_time", told))
        assert json.loads(text_of(await client.call_tool("web__echo", words))) == words
        sessions = {text_of(await each.call_tool("web__session", {})) for each in (client, another)}
        assert len(sessions) == 2, "no two agents share a session upstream"
        refused(await client.call_tool("web__pid", {}), "denied_by_default")
