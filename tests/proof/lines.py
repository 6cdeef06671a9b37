"""A client's connections to both doors, kept alive, and a note of all that was said over them."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.proof.told import LOST, Told

ANSWER_S = 60
Answer = dict[str, Any]


class Gone(Exception):
    """Nobody listens there: the daemon is dead until somebody says otherwise."""


class UnixLine(http.client.HTTPConnection):
    """HTTP over the operator socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("operator", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(str(self._path))


@dataclass
class Lines:
    """The connections of one client. told: every request, in order."""

    who: str
    folder: Path
    port: int
    told: list[Told] = field(default_factory=list)
    _contexts: dict[Path | None, ssl.SSLContext] = field(default_factory=dict)
    _kept: dict[str, http.client.HTTPConnection] = field(default_factory=dict)

    @property
    def stopping(self) -> bool:
        """Did the last answer say that the daemon is about to end?"""
        return bool(self.told) and self.told[-1].status >= 500

    def operator(self, op: str, route: str, body: Any, **about: str) -> Told:
        """A request to the operator socket."""
        socket_path = self.folder / "state" / "operator.sock"
        return self._ask(op, "operator", lambda: UnixLine(socket_path), route, body, about)

    def ask(self, op: str, route: str, **about: str) -> Told:
        """A question to the operator socket that needs no signature."""
        socket_path = self.folder / "state" / "operator.sock"
        return self._ask(op, "operator", lambda: UnixLine(socket_path), route, None, about)

    def agent(self, op: str, route: str, body: Any, pem: Path | None = None, **about: str) -> Told:
        """A request to the agent door. pem: the identity's key and certificate; without one, as a stranger."""

        def line() -> http.client.HTTPSConnection:
            return http.client.HTTPSConnection("127.0.0.1", self.port, context=self._context(pem), timeout=ANSWER_S)

        return self._ask(op, str(pem or ""), line, route, body, about)

    def _context(self, pem: Path | None) -> ssl.SSLContext:
        if pem not in self._contexts:
            context = self._contexts[pem] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(self.folder / "ca.pem")
            if pem:
                context.load_cert_chain(pem)
        return self._contexts[pem]

    def _ask(
        self,
        op: str,
        name: str,
        make: Callable[[], http.client.HTTPConnection],
        route: str,
        body: Any,
        about: dict[str, str],
    ) -> Told:
        """One request, sent once: a lost answer stays lost. Raises Gone where none could be sent."""
        line = self._line(name, make)
        began = time.monotonic()
        status, answer = _said(line, route, body)
        if status and name:
            self._kept[name] = line
        else:
            line.close()
        self.told.append(Told(self.who, op, began, time.monotonic(), status, about, answer))
        return self.told[-1]

    def _line(self, name: str, make: Callable[[], http.client.HTTPConnection]) -> http.client.HTTPConnection:
        kept = self._kept.pop(name, None)
        if kept and not closed(kept):
            return kept
        if kept:
            kept.close()
        new = make()
        try:
            new.connect()
        except OSError as error:
            new.close()
            raise Gone(str(error)) from error
        return new

    def close(self) -> None:
        for line in self._kept.values():
            line.close()
        self._kept.clear()


def _said(line: http.client.HTTPConnection, route: str, body: Any) -> tuple[int, Answer]:
    try:
        if body is None:
            line.request("GET", route)
        else:
            line.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
        with line.getresponse() as response:
            return response.status, json.loads(response.read())
    except TimeoutError:
        return LOST, {"error": "no answer in time"}
    except (OSError, http.client.HTTPException, ValueError):
        return LOST, {}


def closed(line: http.client.HTTPConnection) -> bool:
    """Has the other side closed it? Nothing comes on a connection that waits for our request, but its end."""
    if line.sock is None:
        return True
    line.sock.settimeout(0)
    try:
        return line.sock.recv(1) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    finally:
        line.sock.settimeout(ANSWER_S)
