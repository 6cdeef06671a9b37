"""The figures of the model: `python -m tests.model` runs what CI runs, and prints what it looked at.

With LEVER_SOAK=1 it runs the large space and many more examples.
"""

from __future__ import annotations

from collections import Counter

from tests.model import (
    permit_machine,
    situations,
    stage,
    test_authority_cells,
    test_cells,
    test_explorer,
    test_lease_cells,
    test_machine,
    test_permits,
    test_run_cells,
)


def main() -> None:
    """One line a figure."""
    explorer = test_explorer.explore()
    test_machine.run()
    test_permits.run()
    tables = (test_cells.LIFE, test_cells.DIRECTIVES, test_cells.AGENTS, test_cells.TICKETS)
    tables += (test_authority_cells.REQUESTS, test_authority_cells.ACTS, test_lease_cells.LEASES)
    tables += (test_run_cells.RUNS, test_run_cells.STOPS)
    orders = len(test_cells.ENVELOPES) * len(situations.ORDERED)
    told("model steps", stage.COUNTS)
    told("model steps with tool calls", permit_machine.COUNTS)
    print(f"table cells: {sum(len(test_cells.cells(table)) for table in tables) + orders}")
    print(f"states explored: {explorer.states}, by {explorer.steps} steps, closed: {explorer.closed}")
    print(f"invariants checked: {sum(explorer.checked.values())}")
    for promise, count in explorer.checked.items():
        print(f"  {promise}: {count}")


def told(what: str, counts: Counter[str]) -> None:
    """The steps, and what they reached."""
    print(f"{what}: {counts['steps']}")
    for name in sorted(counts.keys() - {"steps"}):
        print(f"  {name}: {counts[name]}")


if __name__ == "__main__":
    main()
