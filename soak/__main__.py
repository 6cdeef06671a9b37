"""`make soak`: kills, failing calls and power cuts by the thousand, until the time is over, and what came of them."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.fakes.failing_disk import COMPILER, FailingDisk
from tests.proof import power
from tests.proof.faults import each_fault, endure
from tests.proof.forge import Forge
from tests.proof.kills import survive
from tests.proof.power import CannotMount
from tests.proof.scene import Figures

_ENDS = 60  # of one instance: a longer journal makes each start slower, and finds nothing more
_SUMS = ("ends", "busy", "acknowledged", "lost", "executions", "unknown", "violations")


class Soak:
    """Rounds of every kind in turn, each with a seed of its own, and their sums."""

    def __init__(self, forge: Forge, disk: FailingDisk | None) -> None:
        self._forge, self._disk = forge, disk
        self.kinds = {"kills": self._kills, "faults": self._faults, "cuts": self._cuts}
        self.sums: dict[str, list[int]] = {kind: [0] * len(_SUMS) for kind in self.kinds}

    def _kills(self, folder: Path, seed: int) -> Figures:
        return survive(self._forge, folder, seed, _ENDS)

    def _faults(self, folder: Path, seed: int) -> Figures:
        assert self._disk
        return endure(self._forge, folder, seed, self._disk, each_fault(seed, times=3))[0]

    def _cuts(self, folder: Path, seed: int) -> Figures:
        with power.medium(folder.parent) as medium:
            return power.cut(self._forge, folder, seed, medium, _ENDS // 2)

    def possible(self) -> list[str]:
        """The kinds that this machine can do; what it can't is said."""
        kinds = ["kills"] * 4
        if self._disk:
            kinds.append("faults")
        else:
            print("no failing calls: there is no C compiler")
        try:
            with tempfile.TemporaryDirectory() as name, power.medium(Path(name)):
                kinds.append("cuts")
        except CannotMount as why:
            print(f"no power cuts: {why}")
        return kinds

    def round(self, kind: str, seed: int) -> bool:
        """One instance; False where a promise was broken."""
        with tempfile.TemporaryDirectory(prefix="lever-soak-") as name:
            folder = Path(name) / "instance"
            folder.mkdir()
            figures = self.kinds[kind](folder, seed)
        found = (*(getattr(figures, name) for name in _SUMS[:-1]), len(figures.violations))
        self.sums[kind] = [had + more for had, more in zip(self.sums[kind], found, strict=True)]
        print(f"{kind:<7} {figures}", *figures.violations, sep="\n        ", flush=True)
        return not figures.violations


def main() -> int:
    """The exit status: 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", choices=("kills", "faults", "cuts"), help="one kind of end")
    parser.add_argument("--seed", type=int, help="of the first round: what a failure has said, with --only its kind")
    asked = parser.parse_args()
    until, chance, good = time.monotonic() + asked.minutes * 60, random.SystemRandom(), True
    with tempfile.TemporaryDirectory() as name:
        disk = FailingDisk(Path(name)) if COMPILER else None
        with Forge(disk.loaded if disk else None) as forge:
            soak = Soak(forge, disk)
            kinds = [asked.only] if asked.only else soak.possible()
            rounds = 0
            while rounds == 0 or time.monotonic() < until:
                seed = asked.seed if asked.seed is not None and rounds == 0 else chance.getrandbits(32)
                good = soak.round(kinds[rounds % len(kinds)], seed) and good
                rounds += 1
    print(f"\n{rounds} instances, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    for kind, sums in soak.sums.items():
        print(f"{kind:<7}", ", ".join(f"{name} {count}" for name, count in zip(_SUMS, sums, strict=True)))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
