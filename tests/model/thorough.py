"""How thoroughly Hypothesis drives a model: always the same way in the suite, at random and for long in a soak."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_SOAK = bool(os.environ.get("LEVER_SOAK"))


def thorough(examples: int, soak_steps: int) -> settings:
    """examples: so many in the suite, of 50 steps each; soak_steps: how long each is in a soak."""
    return settings(
        max_examples=5000 if _SOAK else examples,
        stateful_step_count=soak_steps if _SOAK else 50,
        derandomize=not _SOAK,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
