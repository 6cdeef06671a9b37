"""`lever stop-all` and `lever resume`: to stop needs no key, to go on does."""

from __future__ import annotations

import json
import shutil
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


@pytest.fixture
def path() -> Iterator[Path]:
    with said.socket_folder() as path:
        yield path


def test_stopping_needs_no_key_and_no_configuration(cli: Cli, instance: Path, path: Path) -> None:
    shutil.rmtree(instance)
    with operator_socket(path, stop=(200, {"stopped": True})) as broker:
        assert cli("stop-all", "--socket", path).stdout == "stopped\n"
        assert json.loads(cli("stop-all", "--json", "--socket", path).stdout) == {"stopped": True}
    assert broker.asked == [("/stop", {}), ("/stop", {})]
    with operator_socket(path, stop=(200, {"stopped": False})):
        done = cli("stop-all", "--socket", path)
    assert (done.status, done.stdout) == (0, "it is stopped already\n")


def test_resuming_is_signed(cli: Cli, instance: Path, path: Path) -> None:
    more = ("--config", instance, "--socket", path)
    with operator_socket(path, admin_stop_lift=(200, {"lifted": True})) as broker:
        assert cli("resume", *more).stdout == "resumed\n"
    value = envelope.read(signed_by(instance, "envelope", body_for(broker, "/admin/stop_lift"), NAMESPACE_ADMIN))
    assert value.op == "stop_lift"
    with operator_socket(path, admin_stop_lift=(200, {"lifted": False})):
        assert cli("resume", *more).status == Exit.REFUSED


def test_a_no_resumes_nothing(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, admin_stop_lift=(200, {"lifted": True})) as broker:
        words = ("resume", "--config", instance, "--socket", path)
        ended = cli.on_terminal(*words, answers={"Sign this?": "n"})
    assert ended.status == Exit.SIGNING_FAILED
    assert "/admin/stop_lift" not in [route for route, _ in broker.asked]


def test_where_nobody_answers_it_says_so(cli: Cli, path: Path) -> None:
    assert cli("stop-all", "--socket", path).status == Exit.NOT_REACHABLE
