"""The line to the broker: each way in which none answers, or answers no, has its own words and exit code."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lever.exits import CliError, Exit
from lever.line import Line
from tests.cli.conftest import Cli
from tests.fakes.operator_socket import operator_socket


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a socket may be, short enough for every system."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder / "operator.sock"
    shutil.rmtree(folder)


def stale(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(path))
    return "found a socket that nobody listens on"


def absent(path: Path) -> str:
    return "found no such socket"


def a_file(path: Path) -> str:
    path.write_text("")
    return "found a socket that nobody listens on"


@pytest.mark.parametrize("spoil", [absent, stale, a_file])
def test_no_broker(cli: Cli, instance: Path, path: Path, spoil: Any) -> None:
    told = spoil(path)
    for words in (("directive", "list"), ("agent", "revoke", "worker-a"), ("directive", "selftest")):
        done = cli(*words, "--config", instance, "--socket", path)
        assert done.status == Exit.NOT_REACHABLE, done.stderr
        assert f"expected a broker on {path}, {told}" in done.stderr
        assert "hint:  lever broker serve" in done.stderr
        assert "signing with" not in done.stderr, "nothing is signed for nobody"
        assert done.stdout == ""


def test_a_path_too_long_for_the_system(cli: Cli, instance: Path, path: Path) -> None:
    done = cli("directive", "list", "--config", instance, "--socket", path.parent / ("x" * 120))
    assert done.status == Exit.USAGE
    assert "expected a socket path of at most 107 bytes" in done.stderr


def test_a_long_path_is_reached_by_a_short_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = path.parent / ("y" * 100)
    deep.mkdir()
    monkeypatch.chdir(deep)
    with operator_socket(Path("a.sock")):
        assert Line(deep / "a.sock").get("/health")["instance"] == "demo"


@pytest.mark.parametrize(
    ("status", "body", "exit", "told"),
    [
        (400, {"error": "unknown", "reason": "bad_signature", "hint": "h"}, 6, "not accept the signature: unknown"),
        (400, {"error": "v: missing", "reason": "malformed", "hint": "h"}, 3, "the broker refused: v: missing"),
        (409, {"error": "it is gone", "reason": "revoked", "hint": "h"}, 3, "the broker refused: it is gone"),
        (429, {"error": "too many", "reason": "rate_limited", "hint": "h"}, 3, "the broker refused: too many"),
        (403, {"error": "forbidden", "hint": "h"}, 3, "the broker refused: forbidden"),
        (404, {"error": "not found", "hint": "h"}, 3, "directives are disabled"),
        (500, {"error": "the journal", "hint": "h"}, 4, "the broker can't answer: the journal"),
        (503, {"error": "no verifier", "hint": "h"}, 4, "the broker can't answer: no verifier"),
        (409, {"error": "a\nerror: b\x1b[2J", "reason": "revoked", "hint": "h"}, 3, "a\\nerror: b\\u001b[2J"),
        (502, b"<html>gateway</html>", 4, "found something else"),
        (200, b"<html>hello</html>", 4, "found something else"),
        (200, b"[1, 2]", 4, "found something else"),
    ],
)  # fmt: skip
def test_what_a_broker_refuses_is_told_in_its_words(
    cli: Cli, instance: Path, path: Path, status: int, body: Any, exit: int, told: str
) -> None:
    with operator_socket(path, directive_list=(status, body)):
        done = cli("directive", "list", "--config", instance, "--socket", path)
    assert done.status == exit
    error, hint = done.stderr.splitlines()
    assert told in error
    assert hint.startswith("hint:  ")


def test_the_broker_of_another_instance_gets_nothing_signed(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, health=(200, {"instance": "prod"})) as broker:
        done = cli("agent", "revoke", "worker-a", "--config", instance, "--socket", path)
    assert done.status == Exit.REFUSED
    assert "expected the broker of instance demo" in done.stderr
    assert "found that of prod" in done.stderr
    assert [route for route, _ in broker.asked] == ["/health"]


def test_a_broker_that_hangs_up(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def hang_up() -> None:
            connection, _ = listening.accept()
            connection.recv(10)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(CliError, match="hung up; the request may have been taken") as raised:
            Line(path).post("/directive/send", {})
        thread.join()
    assert raised.value.exit is Exit.NOT_REACHABLE


def test_a_stream_comes_line_by_line(path: Path) -> None:
    events = [{"kind": "a"}, {"kind": "b"}]
    with operator_socket(path, admin_observe=(200, events)):
        assert list(Line(path).stream("/admin/observe", {})) == events


def test_a_refused_stream_is_told(path: Path) -> None:
    refusal = (409, {"error": "used before", "reason": "envelope_replayed", "hint": "again"})
    with operator_socket(path, admin_observe=refusal), pytest.raises(CliError, match="used before"):
        list(Line(path).stream("/admin/observe", {}))


def test_no_proxy_of_the_environment_is_asked(cli: Cli, instance: Path, path: Path) -> None:
    with operator_socket(path, directive_list=(200, {"directives": []})):
        env = {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
        done = cli("directive", "list", "--config", instance, "--socket", path, "--json", env=env)
    assert json.loads(done.stdout) == {"directives": []}
