"""How a figure is shown: its median with spread, and whether it is what is aimed at."""

from __future__ import annotations

import os
import statistics

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
Row = dict[str, list[float]]


def show(what: str, values: list[float], unit: str, aim: str = "", good: bool = True) -> None:
    """One line: median (minimum to maximum), the aim, and whether it is met."""
    middle, low, high = statistics.median(values), min(values), max(values)
    figures = f"{middle:.4g} ({low:.4g} to {high:.4g}) {unit}".strip()
    verdict = f"aim {aim}: {'met' if good else 'MISSED'}" if aim else ""
    print(f"  {what:<34} {figures:<32} {verdict}".rstrip(), flush=True)


def aimed(what: str, values: list[float], unit: str, *, most: float | None = None, least: float | None = None) -> None:
    middle = statistics.median(values)
    good = (most is None or middle <= most) and (least is None or middle >= least)
    show(what, values, unit, f"<= {most:g}" if most is not None else f">= {least:g}", good)
