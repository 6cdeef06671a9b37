"""kill -9 at random moments."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from tests.proof.forge import Forge
from tests.proof.processes import Daemon
from tests.proof.scene import Figures, Scene

_ANSWERS = 8


class Killed:
    """After some answers; now and then while it starts, or when it has just been told to stop."""

    disk_fails = False

    def environment(self, scene: Scene) -> Mapping[str, str]:
        return {}

    def early(self, scene: Scene) -> bool:
        return scene.chance.random() < 0.1

    def end(self, scene: Scene, daemon: Daemon) -> str:
        chance = scene.chance
        if not daemon.serves:
            daemon.listen(0.08 * chance.random())
        else:
            scene.watch(daemon, answers=int(chance.expovariate(1 / _ANSWERS)))
        stopping = daemon.serves and chance.random() < 0.1
        if stopping:
            daemon.child.send_signal(signal.SIGTERM)
            daemon.listen(0.03 * chance.random())
        status = daemon.end()
        return "" if status == -signal.SIGKILL or (stopping and status == 0) else f"it had ended with {status}"


def survive(forge: Forge, folder: Path, seed: int, kills: int) -> Figures:
    """A new instance, so many kills, and what came of it."""
    return Scene(forge, folder, seed, Killed()).play(kills)
