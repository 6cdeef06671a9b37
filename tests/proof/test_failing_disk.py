"""What the failing disk is trusted for: exactly the chosen call fails, in the chosen folder, in the chosen way."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.failing_disk import COMPILER, FAULTS, SAID, FailingDisk, Fault

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
_PROGRAM = """
import os, sys
inside, outside = (os.open(os.path.join(folder, "file"), os.O_CREAT | os.O_WRONLY) for folder in sys.argv[1:3])
for number in range(1, 4):
    os.write(outside, b"0123456789"), os.fsync(outside), os.rename(sys.argv[2] + "/file", sys.argv[2] + "/file")
    for step in (lambda: os.write(inside, b"0123456789"), lambda: (os.fdatasync, os.fsync)[number % 2](inside),
                 lambda: os.rename(sys.argv[1] + "/file", sys.argv[1] + "/file")):
        try:
            print(step(), flush=True)
        except OSError as error:
            print(-error.errno, flush=True)
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> FailingDisk:
    return FailingDisk(tmp_path_factory.mktemp("failing"))


def run(disk: FailingDisk, folder: Path, fault: Fault | None) -> tuple[int, list[str], int]:
    """The exit status, what each call came to (write, sync, rename, three times), and the size of the file inside."""
    inside, outside = folder / "in", folder / "out"
    for made in (inside, outside):
        made.mkdir()
    environment = {**os.environ, **disk.loaded, **(disk.plan(fault, inside) if fault else {})}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, inside, outside], env=environment, capture_output=True, text=True
    )
    assert (SAID.decode() in done.stderr) == (fault is not None)
    return done.returncode, done.stdout.split(), (inside / "file").stat().st_size


def test_without_a_plan_nothing_fails(disk: FailingDisk, tmp_path: Path) -> None:
    assert run(disk, tmp_path, None) == (0, ["10", "None", "None"] * 3, 30)


@pytest.mark.parametrize(("call", "how"), FAULTS)
def test_the_second_call_of_a_kind_and_no_other_fails(disk: FailingDisk, tmp_path: Path, call: str, how: str) -> None:
    fault = Fault(call, 2, how)  # type: ignore[arg-type]
    status, said, size = run(disk, tmp_path, fault)
    at = 3 + ("write", "sync", "rename").index(call)
    good = ["10", "None", "None"] * 3
    if fault.deadly:
        written = {"torn": 15, "before": 10, "after": 20}[how] if call == "write" else 20
        assert (status, said, size) == (-signal.SIGKILL, good[:at], written)
    elif how == "short":
        assert (status, said, size) == (0, [*good[:at], "5", *good[at + 1 :]], 25)
    elif how == "full":
        assert (status, said, size) == (0, [*good[:at], "5", "None", "None", f"-{errno.ENOSPC}", "None", "None"], 15)
    else:
        refused = [*good[:at], str(-getattr(errno, how)), *good[at + 1 :]]
        assert (status, said, size) == (0, refused, 20 if call == "write" else 30)
