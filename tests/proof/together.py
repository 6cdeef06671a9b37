"""Many requests at one moment, from several processes, each over a connection of its own that is open already."""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.proof.forge import Forge
from tests.proof.lines import UnixLine, closed
from tests.proof.processes import Client

TOGETHER = "tests.proof.together:main"
_ANSWER_S = 60


@dataclass(frozen=True)
class Ask:
    """One request. door: the operator socket's path, or the port of the agent door; pem: whose connection it is."""

    door: str
    route: str
    body: dict[str, Any]
    pem: str = ""


@dataclass(frozen=True)
class Got:
    """Its answer. number: of the request in what was asked."""

    number: int
    status: int
    answer: dict[str, Any]


def at_once(forge: Forge, folder: Path, asks: Sequence[Ask], processes: int = 4) -> list[Got]:
    """Dealt out to so many processes; each connects all of its lines first, and all begin at one word."""
    hands = [list(enumerate(asks))[start::processes] for start in range(processes)]
    clients = []
    for n, hand in enumerate(hands):
        plan = folder / f"together-{n}.json"
        plan.write_text(json.dumps([(number, asdict(ask)) for number, ask in hand]))
        clients.append(Client.start(forge, (str(plan), str(folder / "ca.pem")), folder, entry=TOGETHER))
    for client in clients:
        assert client.first_line() == "connected"
    for client in clients:
        client.up()
    got = [Got(*fields) for client in clients for line in client.rest() for fields in json.loads(line)]
    return sorted(got, key=lambda one: one.number)


def main(words: list[str]) -> int:
    """The file of the plan, the authority's file."""
    plan = [(number, Ask(**ask)) for number, ask in json.loads(Path(words[0]).read_text())]
    got: list[tuple[int, int, Any]] = []
    gate = threading.Barrier(len(plan) + 1)
    with ExitStack() as opened:
        threads = []
        for number, ask in plan:
            line = opened.enter_context(_connected(ask, words[1]))
            threads.append(threading.Thread(target=_one, args=(gate, line, number, ask, got)))
        for thread in threads:
            thread.start()
        print("connected", flush=True)
        sys.stdin.readline()
        gate.wait()
        for thread in threads:
            thread.join()
    print(json.dumps(got))
    return 0 if len(got) == len(plan) else 1


class _Line(ExitStack):
    """A connection that is closed on leaving."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        super().__init__()
        self.connection = connection
        connection.connect()
        self.callback(connection.close)


def _connected(ask: Ask, ca: str) -> _Line:
    if not ask.door.isdigit():
        return _Line(UnixLine(Path(ask.door)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    if ask.pem:
        context.load_cert_chain(ask.pem)
    return _Line(http.client.HTTPSConnection("127.0.0.1", int(ask.door), context=context, timeout=_ANSWER_S))


def _one(gate: threading.Barrier, line: _Line, number: int, ask: Ask, got: list[tuple[int, int, Any]]) -> None:
    gate.wait()
    if closed(line.connection):  # on a busy machine the daemon may not have waited for us all
        _again(line)
    try:
        answer = _asked(line, ask)
    except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):  # it hung up just as we spoke
        _again(line)
        answer = _asked(line, ask)
    got.append((number, *answer))


def _again(line: _Line) -> None:
    line.connection.close()
    line.connection.connect()


def _asked(line: _Line, ask: Ask) -> tuple[int, Any]:
    line.connection.request("POST", ask.route, json.dumps(ask.body), {"Content-Type": "application/json"})
    with line.connection.getresponse() as response:
        return response.status, json.loads(response.read())
