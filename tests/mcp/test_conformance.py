"""What `make conformance` calls good, and its way through mutual TLS. The suite needs Node and is not run here."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from interop import conformance
from interop.conformance import Run
from interop.forwarder import forwarding, presenting
from tests.mcp.conftest import Beside

EXPECTED = {"a:b": "why"}


@pytest.mark.parametrize(
    ("checks", "status", "good"),
    [
        ({"a:b": "FAILURE", "a:c": "SUCCESS"}, 0, True),
        ({"a:b": "WARNING", "a:c": "SKIPPED"}, 0, True),
        ({"a:b": "FAILURE", "a:c": "FAILURE"}, 0, False),
        ({"a:b": "FAILURE", "a:c": "WARNING"}, 0, False),
        ({"a:b": "SUCCESS"}, 0, False),
        ({"a:b": "SKIPPED"}, 0, False),
        ({"a:c": "SUCCESS"}, 0, False),
        ({"a:b": "FAILURE"}, 1, False),
    ],
)
def test_only_what_was_expected_may_fail_and_it_must(checks: dict[str, str], status: int, good: bool) -> None:
    assert Run(checks, EXPECTED, status).good is good


def test_a_run_without_checks_is_not_good() -> None:
    assert not Run({}, {}, 0).good


@pytest.mark.parametrize("line", ["  - a:b", "  - a:b  # ", "  - a: b  # why", "- a:b  # why", "client:"])
def test_an_expectation_without_a_reason_is_refused(line: str) -> None:
    assert conformance.expectations("# head\nserver:\n  - a:b  # why") == EXPECTED
    with pytest.raises(AssertionError):
        conformance.expectations(f"server:\n{line}")


@pytest.mark.parametrize("revision", conformance.REVISIONS)
def test_every_expectation_in_the_tree_has_its_reason(revision: str) -> None:
    assert conformance.expectations((conformance.EXPECTED / f"{revision}.yaml").read_text())


def test_of_a_repeated_check_the_worst_counts(tmp_path: Path) -> None:
    folder = tmp_path / "server-tools-list-2026-01-31T09-00-00-123Z"
    folder.mkdir()
    told = ",".join(f'{{"id": "c", "status": "{status}"}}' for status in ("SUCCESS", "FAILURE", "INFO"))
    (folder / "checks.json").write_text(f"[{told}]")
    assert conformance.checks(tmp_path) == {"tools-list:c": "FAILURE"}


async def test_the_forwarder_presents_the_identity_and_changes_no_header(beside: Beside) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with (
        forwarding(beside.rig.port, presenting(beside.identity)) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client,
    ):
        assert (await client.post("/mcp", json=ping)).json()["result"] == {}
        assert (await client.post("/mcp", json=ping, headers={"host": "evil.example"})).status_code == 421
        assert (await client.post("/mcp", json=ping, headers={"origin": "https://evil.example"})).status_code == 403
