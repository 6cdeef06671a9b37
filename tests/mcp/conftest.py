"""An agent with an identity folder, beside a running instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp.types import CallToolResult, TextContent

from tests.rig import LEVER, Rig


@dataclass
class Beside:
    """What runs beside an agent: its identity folder, enrolled by the installed `lever`."""

    rig: Rig
    cn: str
    identity: Path

    @property
    def argv(self) -> list[str]:
        """How a harness starts the server."""
        return [LEVER, "agent", "mcp", "--identity", str(self.identity)]

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


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Rig, Beside]]:
    """An instance that this test may break, and an agent of it."""
    made = Rig.create(tmp_path / "instance").start()
    beside = Beside(made, "worker-a", tmp_path / "identity")
    beside.enrol()
    yield made, beside
    made.close()
