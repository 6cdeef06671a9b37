"""`lever policy check` beside a running broker: which entries name no accepted tool, or that this was not looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import said
from tests.cli.conftest import Cli, Done
from tests.cli.said import in_force
from tests.cli.test_policy_apply import FILE
from tests.fakes.operator_socket import operator_socket

IDLE = "no accepted tool has these names: files.write; see lever tools list"


@pytest.fixture
def path() -> Iterator[Path]:
    with said.socket_folder() as path:
        yield path


def check(cli: Cli, instance: Path, path: Path, *words: str) -> Done:
    (cli.folder / "new.yaml").write_text(FILE)
    return cli("policy", "check", "new.yaml", *words, "--config", instance, "--socket", path)


def test_it_warns_of_the_entries_that_apply_would_warn_of(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, admin_policy_show=in_force(("files.read",))) as broker:
        done, data = check(cli, instance, path), check(cli, instance, path, "--json")
    assert (done.status, data.status) == (0, 0)
    assert f"warning: {IDLE}" in done.stderr.splitlines()
    assert "not checked" not in done.stderr
    told = json.loads(data.stdout)
    assert (told["warnings"][-1], told["names_checked"]) == (IDLE, True)
    assert {route for route, _ in broker.asked} == {"/health", "/admin/policy_show"}, "it asks, and changes nothing"


def test_where_that_can_not_be_asked_a_line_says_so_and_the_rest_is_checked(
    cli: Cli, instance: Path, path: Path
) -> None:
    away = check(cli, instance, path)
    with operator_socket(path):
        older = check(cli, instance, path)
    with operator_socket(path, health=(200, {"instance": "another"})) as broker:
        other = check(cli, instance, path, "--json")
    for done in (away, older, other):
        assert done.status == 0
        assert sum(line.startswith("tool names were not checked: ") for line in done.stderr.splitlines()) == 1
        assert "no accepted tool" not in done.stderr
    assert "expected a broker on" in away.stderr
    assert "good: 2 allowed" in away.stderr
    assert json.loads(other.stdout)["names_checked"] is False
    assert {route for route, _ in broker.asked} == {"/health"}, "nothing is signed for another instance"
