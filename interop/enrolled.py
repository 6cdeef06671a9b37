"""A running instance with one enrolled agent, for the programs of others to meet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig import Rig

CN = "worker-a"
NODE_TOOLS = Path(__file__).with_name("node") / "node_modules" / ".bin"
LIMITS = "limits: {inbox_per_minute: 100000}"  # a suite sends hundreds of messages within a second


@contextmanager
def enrolled(folder: Path) -> Iterator[tuple[Rig, Path]]:
    """The instance and the agent's identity folder, as `lever agent enrol` made it."""
    rig = Rig.create(folder / "instance", limits=LIMITS).start()
    try:
        bundle, identity = rig.folder / "bundle.json", folder / "identity"
        rig.cli("agent", "invite", CN, "--out", str(bundle))
        rig.cli("agent", "enrol", "--bundle", str(bundle), "--identity", str(identity))
        yield rig, identity
    finally:
        rig.close()


def node_environment(home: Path) -> dict[str, str]:
    """The locked tools first, and Node with them where npm had one for this machine; nothing of the user's own."""
    return {"PATH": f"{NODE_TOOLS}{os.pathsep}{os.environ['PATH']}", "HOME": str(home), "NO_COLOR": "1"}
