"""`make interop`: clients of others against `lever agent mcp`, from a real identity."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from interop.enrolled import CN, enrolled
from interop.inspector import inspect
from tests.rig import LEVER, WRITE_FILE, Rig

OLDER = "mcp==1.30.0"


def main() -> None:
    """Both, with one agent."""
    with tempfile.TemporaryDirectory(prefix="lever-interop-") as name:
        folder = Path(name)
        with enrolled(folder) as (rig, identity):
            protocol = inspect(rig, identity)
            print(f"the inspector listed, looked into the inbox and checked ({protocol})", file=sys.stderr)
            consume_once(folder / "venv", rig, identity)
            print(f"{OLDER} consumed a directive, once", file=sys.stderr)


def consume_once(environment: Path, rig: Rig, identity: Path) -> None:
    """An older official Python client, in an environment of its own: a second time is the miss."""
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", OLDER], check=True)
    id = rig.send(CN, action=WRITE_FILE)
    argv = [python, Path(__file__).with_name("older_client.py"), id]
    argv += [LEVER, "agent", "mcp", "--identity", str(identity)]
    said = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    print(json.dumps(said, indent=2))
    assert said["protocol"] == "2025-11-25"
    assert said["consumed"]["action"]["args"] == WRITE_FILE.args
    assert said["again"] == [True, "not found"]


if __name__ == "__main__":
    main()
