"""A disk that fails at one call, in each life at another: refused, half done, or killed around it."""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.failing_disk import FAULTS, FailingDisk, Fault
from tests.proof.forge import Forge
from tests.proof.processes import Daemon
from tests.proof.scene import Figures, Scene

_PATIENCE = 20  # answers; a short write ends nobody


class Failing:
    """One fault of the list for each life."""

    disk_fails = True

    def __init__(self, disk: FailingDisk, faults: list[Fault]) -> None:
        self._disk, self._faults = disk, iter(faults)
        self._fault = faults[0]
        self.met = 0

    def environment(self, scene: Scene) -> Mapping[str, str]:
        self._fault = next(self._faults)
        return self._disk.plan(self._fault, scene.state)

    def early(self, scene: Scene) -> bool:
        return False

    def end(self, scene: Scene, daemon: Daemon) -> str:
        renaming = self._fault.call == "rename"
        if daemon.serves:
            scene.watch(daemon, answers=3 if renaming else _PATIENCE)
        if daemon.listen(0):  # a clean stop renames the head; otherwise the fault was not met, or is none
            status = daemon.end(signal.SIGTERM if renaming else signal.SIGKILL)
            return self._judged(status, {0 if renaming else -signal.SIGKILL})
        return self._judged(daemon.ended(), set())

    def _judged(self, status: int, allowed: set[int]) -> str:
        self.met += self._fault.how == "short" or status not in allowed
        if self._fault.how != "short":
            allowed |= {-signal.SIGKILL if self._fault.deadly else 1}
        return "" if status in allowed else f"after {self._fault} it ended with {status}, not {allowed}"


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
