"""A disk that fails at a chosen call, for a real process: a library between the program and the system's own calls."""

from __future__ import annotations

import errno
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_suffix(".c")
COMPILER = shutil.which("cc")
Call = Literal["write", "sync", "rename"]
How = Literal["EIO", "ENOSPC", "short", "full", "torn", "before", "after"]
_WRITES: tuple[How, ...] = ("EIO", "ENOSPC", "short", "full", "torn", "before", "after")
_OTHERS: tuple[How, ...] = ("EIO", "ENOSPC", "before", "after")
FAULTS: tuple[tuple[Call, How], ...] = (
    *(("write", how) for how in _WRITES),
    *(("sync", how) for how in _OTHERS),
    *(("rename", how) for how in _OTHERS),
)
SAID = b"failing disk: "
DEADLY = ("torn", "before", "after")


@dataclass(frozen=True)
class Fault:
    """At the nth use of this call in the folder: a refusal, a half done write, or kill -9 around it."""

    call: Call
    nth: int
    how: How

    @property
    def deadly(self) -> bool:
        """Does the process end in the middle of the call?"""
        return self.how in DEADLY


class FailingDisk:
    """A library in `folder`; `loaded` is the environment that a process needs from its start, `plan` what fails."""

    def __init__(self, folder: Path) -> None:
        assert COMPILER
        self._library = folder / "failing_disk.so"
        argv = [COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(argv, check=True)

    @property
    def loaded(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library)}

    def plan(self, fault: Fault, where: Path) -> dict[str, str]:
        """This fault, in the folder `where` and below."""
        how = getattr(errno, fault.how, fault.how)
        return {"FAILING_DISK": f"{fault.call}:{fault.nth}:{how}:{where.resolve()}/"}
