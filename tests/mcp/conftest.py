"""An agent with an identity folder, beside a running instance."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp.types import CallToolResult, TextContent

from tests.authority.desk import FAKE, Desk, a_policy, desk
from tests.rig import LEVER, Rig

SERVERS = f"""
servers:
  s: {{command: ["{sys.executable}", "-S", "{FAKE}"], sandbox: none}}
  r: {{command: ["{sys.executable}", "-S", "{FAKE}"], sandbox: none}}
"""
"""The same server twice: what r does is done at once, what s does is asked for."""
TIERS = {
    "allowed": ["r.echo", "r.fails", "r.large", "r.silent"],
    "approval_required": ["s.echo"],
    "denied": ["s.dies"],
}
POLICY = a_policy(tool_allowlist=TIERS, tools={name: {"class": "read"} for name in TIERS["allowed"]})
BROKERED = {"lease_request", "lease_release", "request_status", "s__echo"}
BROKERED |= {f"r__{name.partition('.')[2]}" for name in TIERS["allowed"]}
"""What an agent is listed beside the directive tools."""


@dataclass
class Beside:
    """What runs beside an agent: its identity folder, enrolled by the installed `lever`."""

    rig: Rig
    cn: str
    identity: Path

    @property
    def argv(self) -> list[str]:
        """How a harness starts the server; `test_installed.py` starts one that was not forked."""
        words = [LEVER, "agent", "mcp", "--identity", str(self.identity)]
        return Rig.server.argv(*words) if Rig.server else words

    def enrol(self) -> None:
        bundle = self.rig.folder / f"{self.cn}.json"
        bundle.unlink(missing_ok=True)
        self.rig.cli("agent", "invite", self.cn, "--out", str(bundle))
        self.rig.cli("agent", "enrol", "--bundle", str(bundle), "--identity", str(self.identity))


def text_of(result: CallToolResult) -> str:
    """The one text block of a tool's result."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A running instance, shared by the module."""
    made = Rig.create(tmp_path_factory.mktemp("instance")).start()
    yield made
    made.close()


@pytest.fixture
def beside(rig: Rig, tmp_path: Path, request: pytest.FixtureRequest) -> Beside:
    """An enrolled agent of this test's own."""
    made = Beside(rig, f"m-{abs(hash(request.node.name)) % 10**9}", tmp_path / "identity")
    made.enrol()
    return made


def opened(folder: Path) -> Desk:
    """An instance with both servers, their tools accepted."""
    made = desk(folder, SERVERS)
    assert made.apply(POLICY).status_code == 200
    for server in ("s", "r"):
        assert made.accept(server).status_code == 200
    return made


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """An operator's desk with tool servers, shared by the module."""
    made = opened(tmp_path_factory.mktemp("office"))
    yield made
    made.rig.close()


@pytest.fixture
def worker(office: Desk, tmp_path: Path) -> Beside:
    """An agent of the office, of this test's own."""
    made = Beside(office.rig, f"w-{uuid.uuid4().hex[:8]}", tmp_path / "identity")
    made.enrol()
    return made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Rig, Beside]]:
    """An instance that this test may break, and an agent of it."""
    made = Rig.create(tmp_path / "instance").start()
    beside = Beside(made, "worker-a", tmp_path / "identity")
    beside.enrol()
    yield made, beside
    made.close()
