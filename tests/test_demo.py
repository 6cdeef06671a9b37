"""`make demo` tells its whole story, step by step as told, with the installed command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_story_is_as_told() -> None:
    argv = [sys.executable, str(ROOT / "demo/run.py")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "as told, in " in done.stdout
