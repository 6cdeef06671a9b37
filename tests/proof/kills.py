"""kill -9 at random moments."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from tests.proof.forge import Forge
from tests.proof.processes import SERVE, Daemon
from tests.proof.scene import Figures, Scene

_ANSWERS = 2
_CALLS = 8  # at most, until one is executed


class Killed:
    """After some answers; now and then while it starts, or when it has just been told to stop."""

    disk_fails = False
    entry = SERVE
    listed, verified = 0.06, 0.1

    def environment(self, scene: Scene) -> Mapping[str, str]:
        return {}

    def early(self, scene: Scene) -> bool:
        return scene.chance.random() < 0.1

    def calling(self) -> bool:
        return False

    def end(self, scene: Scene, daemon: Daemon) -> str:
        chance = scene.chance
        if not daemon.serves:
            daemon.listen(0.08 * chance.random())
        else:
            self._watch(scene, daemon)
        stopping = daemon.serves and chance.random() < 0.1
        if stopping:
            daemon.child.send_signal(signal.SIGTERM)
            daemon.listen(0.03 * chance.random())
        status = daemon.end()
        return "" if status == -signal.SIGKILL or (stopping and status == 0) else f"it had ended with {status}"

    def _watch(self, scene: Scene, daemon: Daemon) -> None:
        """Where there are callers, until they had answers, or until a call is being executed."""
        answers = int(scene.chance.expovariate(1 / _ANSWERS))
        if not scene.cast[-1]:
            scene.watch(daemon, answers)
        elif scene.chance.random() < 0.5:
            scene.watch(daemon, _CALLS, "kx")
        else:
            scene.watch(daemon, 1 + answers, "k")


def survive(forge: Forge, folder: Path, seed: int, kills: int) -> Figures:
    """A new instance, so many kills, and what came of it."""
    return Scene(forge, folder, seed, Killed()).play(kills)
