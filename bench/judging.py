"""The judgement of one call alone: a policy of a thousand rules, twenty of them about the call's arguments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.figures import ROUNDS, aimed
from broker.rules.authority import Call, judge
from broker.wire import catalogue, policy
from broker.wire.names import Cn

BATCH, BATCHES = 100, 100


def judging(folder: Path) -> None:
    """The least of many short batches: whatever else runs on the machine only adds."""
    print("\njudge(), 1,000 rules of which 20 about arguments")
    arguments, rules = _arguments()
    kinds = {name: {"type": "integer" if isinstance(value, int) else "string"} for name, value in arguments.items()}
    tool = catalogue.pin("s", {"name": "search", "inputSchema": {"type": "object", "properties": kinds}})
    lists = {
        "allowed": ["s.search", *(f"a{n}.tool" for n in range(326))],
        "approval_required": [f"b{n}.tool*" for n in range(327)],
        "denied": [f"c{n}.*delete*" for n in range(327)],
    }
    tools: dict[str, Any] = {"s.search": {"class": "read", "rules": rules}}
    head: dict[str, Any] = {"v": 1, "name": "bench", "default_action": "deny", "tool_allowlist": lists}
    layers = [policy.of({**head, "tools": tools})]
    call = Call(Cn("bench-0"), "s.search", arguments)
    assert judge(tool, layers, call).regime == "automatic"
    least = []
    for _ in range(ROUNDS):
        batches = []
        for _ in range(BATCHES):
            begun = time.perf_counter()
            for _ in range(BATCH):
                judge(tool, layers, call)
            batches.append((time.perf_counter() - begun) / BATCH * 1e6)
        least.append(min(batches))
    aimed("judge(), least of short batches", least, "us", most=15)


def _arguments() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Twenty arguments with a rule for each, of the four most usual kinds."""
    arguments: dict[str, Any] = {}
    rules: list[dict[str, Any]] = []
    for n in range(5):
        arguments |= {f"path{n}": f"/srv/a/notes/{n}.txt", f"limit{n}": 7, f"text{n}": "some words", f"in{n}": "inbox"}
        rules += [
            {"pointer": f"/path{n}", "prefix": ["/srv/a", "/srv/b"]},
            {"pointer": f"/limit{n}", "min": 1, "max": 50},
            {"pointer": f"/text{n}", "max_length": 100},
            {"pointer": f"/in{n}", "in": ["inbox", "sent"]},
        ]
    return arguments, rules
