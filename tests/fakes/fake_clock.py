"""A process's wall clock, set from outside while it runs: a library between the program and the system's own clock."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
COMPILER = shutil.which("cc")


class FakeClock:
    """Offset in seconds between the wall clock of the processes that run with `environment` and the real one.

    The monotonic clock stays real: deadlines and timers go on, as when a clock is set. `folder` is the fake's own.
    """

    def __init__(self, folder: Path) -> None:
        assert COMPILER
        folder.mkdir(parents=True, exist_ok=True)
        self._file, self._library = folder / "offset_s", folder / "fake_clock.so"
        self.set(0)
        argv = [COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", self._library, SOURCE, "-ldl"]
        subprocess.run(argv, check=True)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process follow this clock."""
        return {"LD_PRELOAD": str(self._library), "FAKE_CLOCK": str(self._file)}

    def set(self, offset_s: int) -> None:
        """From now on the clock is so far from the real one."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", offset_s))
