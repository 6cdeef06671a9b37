"""A disk that fails at one call, in each life at another: refused, half done, or killed around it."""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.failing_disk import FAULTS, SAID, FailingDisk, Fault
from tests.proof.forge import LEVER, Forge
from tests.proof.processes import Daemon
from tests.proof.scene import Figures, Scene

_END, _END_S = 0, 20.0  # of a clean stop; and how long a daemon whose disk failed may take to end
_CALLS = 200  # at most, until one is executed
_PATIENCE = 20  # answers; a short write ends nobody


class Failing:
    """One fault of the list for each life."""

    disk_fails = True
    entry = LEVER
    listed, verified = 0.5, 1.0

    def __init__(self, disk: FailingDisk, faults: list[Fault]) -> None:
        self._disk, self._faults = disk, iter(faults)
        self._fault = faults[0]
        self.met = 0

    def environment(self, scene: Scene) -> Mapping[str, str]:
        self._fault = next(self._faults)
        return self._disk.plan(self._fault, scene.state)

    def early(self, scene: Scene) -> bool:
        return False

    def calling(self) -> bool:
        """A short write ends nobody: such a life goes on until a call is executed."""
        return self._fault.how == "short"

    def end(self, scene: Scene, daemon: Daemon) -> str:
        renaming = self._fault.call == "rename"
        if daemon.serves:
            if self.calling():
                scene.watch(daemon, _CALLS, "kx")
            scene.watch(daemon, answers=3 if renaming else _PATIENCE)
        alive = daemon.listen(0)
        if alive and SAID in daemon.said and self._fault.how != "short" and daemon.listen(_END_S):
            daemon.end()
            return f"it went on after {self._fault}"
        # A clean stop renames the head. Otherwise the fault was not met, or is none, and so it lives.
        status = daemon.end(signal.SIGTERM if renaming else signal.SIGKILL) if alive else daemon.ended()
        return self._judged(daemon, status, _END if renaming else -signal.SIGKILL, alive)

    def _judged(self, daemon: Daemon, status: int, ours: int, alive: bool) -> str:
        met = SAID in daemon.said
        self.met += met
        allowed = {ours} if alive else set()
        if met and self._fault.how != "short":
            allowed = {-signal.SIGKILL if self._fault.deadly else 1}
        return "" if status in allowed else f"after {self._fault}, met: {met}, it ended with {status}, not {allowed}"


def each_fault(seed: int, times: int) -> list[Fault]:
    """Every kind so often, at calls that a life comes to."""
    chance = random.Random(seed)
    kinds = list(FAULTS) * times
    chance.shuffle(kinds)
    return [Fault(call, 1 if call == "rename" else chance.randint(1, 12), how) for call, how in kinds]


def endure(forge: Forge, folder: Path, seed: int, disk: FailingDisk, faults: list[Fault]) -> tuple[Figures, int]:
    """A new instance, a life for each fault, and what came of it; how many faults were met."""
    ending = Failing(disk, faults)
    return Scene(forge, folder, seed, ending).play(len(faults)), ending.met
