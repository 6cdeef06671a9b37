"""What one run may use: the seed's five limits, each the least of all layers."""

from __future__ import annotations

from collections.abc import Sequence

from broker.errors import Reason
from broker.rules.authority.entries import Run
from broker.wire.names import Instant
from broker.wire.policy_terms import Budgets, Policy
from broker.wire.times import SECOND

UNREPORTED_S = 60
MICRO_A_CENT = 10_000
OF_USAGE = ("max_input_tokens", "max_output_tokens", "max_cost_cents")


def limits(layers: Sequence[Policy]) -> Budgets:
    """The least of each limit that any layer sets."""

    def least(name: str) -> int | None:
        set_ones = [value for policy in layers if (value := getattr(policy.budgets, name)) is not None]
        return min(set_ones, default=None)

    return Budgets(*(least(name) for name in Budgets.__dataclass_fields__))


def used(run: Run | None, now: Instant) -> dict[str, int]:
    """What a run has used, by the names of the limits without their `max_`; nothing before it began."""
    if run is None:
        return dict.fromkeys(("tool_calls", "wall_time_secs", "input_tokens", "output_tokens", "cost_cents"), 0)
    return {
        "tool_calls": run.calls,
        "wall_time_secs": ((run.stopped_at or now) - run.started_at) // SECOND,
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "cost_cents": run.cost_micro // MICRO_A_CENT,
    }


def exceeded(run: Run | None, layers: Sequence[Policy], now: Instant) -> tuple[Reason, str] | None:
    """Why this run gets no further call; None while it does. A run that has not begun has used nothing."""
    allowed = limits(layers)
    for name, count in used(run, now).items():
        limit = getattr(allowed, f"max_{name}")
        if limit is not None and count >= limit:
            return Reason.BUDGET_EXCEEDED, f"{name} {count}/{limit}"
    by_figures = any(getattr(allowed, name) is not None for name in OF_USAGE)
    if run and by_figures and now - max(run.usage_at, run.started_at) > UNREPORTED_S * SECOND:
        return Reason.USAGE_UNREPORTED, f"no figures of tokens or cost for {UNREPORTED_S} s"
    return None
