"""`make conformance`: the official server suite against /mcp, in both revisions, over mutual TLS.

The suite compares with interop/expected/REVISION.yaml and has the last word. Its table is told again in short, and an
expectation that names nothing which failed is an error, too: the suite lets that pass.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from interop.enrolled import enrolled, node_environment
from interop.forwarder import forwarding, presenting

REVISIONS = ("2025-11-25", "2026-07-28")
EXPECTED = Path(__file__).with_name("expected")
TIMEOUT_S = 600
_EXPECTATION = re.compile(r"  - (\S+)  # (\S.*)")
_RESULTS = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_SEVERITY = ("SKIPPED", "INFO", "SUCCESS", "WARNING", "FAILURE")
_BAD = ("WARNING", "FAILURE")  # to the suite, too, both are failures once it compares


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one revision: the status of each check, the reason of each expectation, the suite's own word."""

    checks: dict[str, str]
    expected: dict[str, str]
    status: int

    @property
    def surprises(self) -> list[str]:
        """Checks that failed and were not expected to."""
        return sorted(name for name, status in self.checks.items() if status in _BAD and name not in self.expected)

    @property
    def stale(self) -> list[str]:
        """Expectations of checks that passed, or that nobody made."""
        return sorted(name for name in self.expected if self.checks.get(name) not in _BAD)

    @property
    def good(self) -> bool:
        return self.status == 0 and bool(self.checks) and not self.surprises and not self.stale


def main() -> int:
    """1 for a failure that is not expected, and for one that is and does not happen."""
    with tempfile.TemporaryDirectory(prefix="lever-conformance-") as name:
        runs = asyncio.run(_both(Path(name)))
    for revision, run in runs.items():
        show(revision, run)
    return 0 if all(run.good for run in runs.values()) else 1


async def _both(folder: Path) -> dict[str, Run]:
    with enrolled(folder) as (rig, identity):
        async with forwarding(rig.port, presenting(identity)) as port:
            url = f"http://127.0.0.1:{port}/mcp"
            return {revision: await asyncio.to_thread(run, revision, url, folder) for revision in REVISIONS}


def run(revision: str, url: str, folder: Path) -> Run:
    """Every scenario of this revision, also those that the suite does not score yet; extensions are not among them."""
    results, baseline = folder / revision, EXPECTED / f"{revision}.yaml"
    argv = ["conformance", "server", "--url", url, "--suite", "all", "--spec-version", revision]
    argv += ["--expected-failures", str(baseline), "--output-dir", str(results)]
    done = subprocess.run(argv, env=node_environment(folder), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=TIMEOUT_S)  # fmt: skip
    found = Run(checks(results), expectations(baseline.read_text()), done.returncode)
    if not found.good:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return found


def checks(results: Path) -> dict[str, str]:
    """The status of each scenario:check; of one that is made repeatedly the worst."""
    worst: dict[str, str] = {}
    for file in sorted(results.glob("*/checks.json")):
        named = _RESULTS.fullmatch(file.parent.name)
        assert named, file
        for check in json.loads(file.read_text()):
            name, status = f"{named[1]}:{check['id']}", check["status"]
            worst[name] = max(status, worst.get(name, status), key=_SEVERITY.index)
    return worst


def expectations(text: str) -> dict[str, str]:
    """The reason of each expected failure: one a line, none without."""
    head, *lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert head == "server:", head
    expected: dict[str, str] = {}
    for line in lines:
        told = _EXPECTATION.fullmatch(line)
        assert told, f"expected '  - scenario:check  # reason', found: {line}"
        expected[told[1]] = told[2]
    return expected


def show(revision: str, run: Run) -> None:
    """A short table: what passed, what failed as expected and why, and what surprises."""
    counts = Counter(run.checks.values())
    failed = sum(counts[status] for status in _BAD)
    print(f"\n{revision}  {'as expected' if run.good else 'NOT AS EXPECTED'} (the suite's exit status: {run.status})")
    print(
        f"  {counts['SUCCESS']:>4} checks passed, {failed} failed, {counts['SKIPPED'] + counts['INFO']} not applicable"
    )
    for reason, count in Counter(run.expected.values()).most_common():
        print(f"  {count:>4} expected to fail: {reason}")
    for title, names in (("failed, not expected", run.surprises), ("expected to fail, did not", run.stale)):
        for name in names:
            print(f"       {title}: {name}")


if __name__ == "__main__":
    sys.exit(main())
