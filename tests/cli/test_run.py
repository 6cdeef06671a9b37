"""`lever run`: what was used of what, and a run's end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.wire import envelope
from broker.wire.names import NAMESPACE_ADMIN
from lever.exits import Exit
from tests.cli import said
from tests.cli.conftest import Cli
from tests.cli.test_directive import body_for, signed_by
from tests.fakes.operator_socket import operator_socket

RUN = {
    "run": "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55", "agent": {"cn": "worker-a", "generation": 3}, "state": "going on",
    "started_at": "2026-01-01T00:00:00Z", "usage_at": None,
    "used": {"tool_calls": 7, "wall_time_secs": 65, "input_tokens": 0, "output_tokens": 0, "cost_cents": 0},
    "limits": {"tool_calls": 300, "wall_time_secs": None, "input_tokens": None, "output_tokens": None, "cost_cents": 5},
}  # fmt: skip


@pytest.fixture
def path() -> Iterator[Path]:
    with said.socket_folder() as path:
        yield path


def test_list_and_show(cli: Cli, instance: Path, path: Path) -> None:
    more = ("--config", instance, "--socket", path)
    with operator_socket(path, admin_run_list=(200, {"runs": [RUN], "stopped": True})):
        listed, data = cli("run", "list", *more), cli("run", "show", RUN["run"], "--json", *more)
        shown, unknown = cli("run", "show", RUN["run"], *more), cli("run", "show", "other", *more)
        ended = cli.on_terminal("run", "list", *more, env={"NO_COLOR": "1"})
    assert "7/300" in listed.stdout
    assert "65/-" in listed.stdout
    assert "everything is stopped: lever resume" in listed.stderr
    assert json.loads(data.stdout) == RUN
    assert ["cost_cents", "0", "5"] in [line.split() for line in shown.stdout.splitlines()]
    assert unknown.status == Exit.REFUSED
    assert max(map(len, ended.screen.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())) <= 80


def test_new_and_stop_are_signed(cli: Cli, instance: Path, path: Path) -> None:
    more = ("--config", instance, "--socket", path)
    with operator_socket(
        path, admin_run_new=(200, {"run": "run-2"}), admin_run_stop=(200, {"stopped": True})
    ) as broker:  # fmt: skip
        assert cli("run", "new", "worker-a", *more).stdout == "worker-a begins run run-2\n"
        assert cli("run", "stop", "run-2", *more).stdout == "stopped run-2\n"
    new, stop = (
        envelope.read(signed_by(instance, "envelope", body_for(broker, f"/admin/{op}"), NAMESPACE_ADMIN))
        for op in ("run_new", "run_stop")
    )
    assert (new.op, new.params["cn"]) == ("run_new", "worker-a")
    assert (stop.op, stop.params["run"]) == ("run_stop", "run-2")
    with operator_socket(path, admin_run_stop=(200, {"stopped": False})):
        assert cli("run", "stop", "run-2", *more).status == Exit.REFUSED


def test_usage_is_reported_without_a_key_for_the_agents_own_run(cli: Cli, instance: Path, path: Path) -> None:
    more = ("--config", instance, "--socket", path)
    given = ("run", "usage", "worker-a", "--input-tokens", "1200", "--cost-cents", "2.5", *more)
    with operator_socket(path, usage=(200, {"added": True, "run": "run-2"})) as broker:
        assert cli(*given).stdout == "added to run run-2\n"
    assert body_for(broker, "/usage") == {
        "agent": "worker-a",
        "gen_ai.usage.input_tokens": 1200,
        "gen_ai.usage.output_tokens": 0,
        "cost_micro": 25_000,
    }
    with operator_socket(path, usage=(200, {"added": False, "run": None})):
        none = cli(*given)
    assert (none.status, none.stdout) == (Exit.REFUSED, "")
    assert "worker-a is in no run" in none.stderr


@pytest.mark.parametrize("cents", ["-1", "1.00001", "1,5", ".5", "1e3", "", "٣"])
def test_an_amount_is_decimal_digits(cli: Cli, instance: Path, cents: str) -> None:
    done = cli("run", "usage", "worker-a", "--cost-cents", cents, "--config", instance)
    assert (done.status, "an amount like" in done.stderr) == (Exit.USAGE, True)
