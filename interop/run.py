"""`make interop`: an older official Python client, in an environment of its own, against `lever agent mcp`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.rig import LEVER, WRITE_FILE, Rig

OLDER = "mcp==1.30.0"


def main() -> None:
    """Consume one directive with it, and see that a second time is the miss."""
    with tempfile.TemporaryDirectory(prefix="lever-interop-") as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", OLDER], check=True)
        rig = Rig.create(folder / "instance").start()
        try:
            bundle, identity = rig.folder / "bundle.json", folder / "identity"
            rig.cli("agent", "invite", "worker-a", "--out", str(bundle))
            rig.cli("agent", "enrol", "--bundle", str(bundle), "--identity", str(identity))
            id = rig.send("worker-a", action=WRITE_FILE)
            argv = [python, Path(__file__).with_name("older_client.py"), id]
            argv += [LEVER, "agent", "mcp", "--identity", str(identity)]
            said = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        finally:
            rig.close()
    print(json.dumps(said, indent=2))
    assert said["protocol"] == "2025-11-25"
    assert said["consumed"]["action"]["args"] == WRITE_FILE.args
    assert said["again"] == [True, "not found"]
    print(f"{OLDER} consumed a directive, once", file=sys.stderr)


if __name__ == "__main__":
    main()
