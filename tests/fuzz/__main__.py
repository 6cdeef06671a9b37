"""Soaks every target: python -m tests.fuzz SECONDS_PER_TARGET [TARGET ...]."""

from __future__ import annotations

import secrets
import sys

from tests.fuzz.target import Violation, soak
from tests.fuzz.targets import TARGETS


def main(seconds: float, chosen: list[str]) -> int:
    """Print a line for each target; the exit status is 1 when one was violated."""
    seed = secrets.randbits(64)
    print(f"seed {seed}")
    whole = violated = 0
    for target in TARGETS:
        if chosen and target.name not in chosen:
            continue
        try:
            tried = soak(target, seconds, seed)
        except Violation as violation:
            violated += 1
            print(f"{target.name}: VIOLATED: {violation}")
            continue
        whole += tried
        print(f"{target.name:40} {tried:>12,}", flush=True)
    print(f"{'all':40} {whole:>12,}\n{violated} violations")
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
