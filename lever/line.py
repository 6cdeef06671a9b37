"""The line to a broker: HTTP over the operator socket, and each way it can fail as a failure of the command.

With http.client and not httpx2: that one leaves its socket open when a connect fails, hides the system's error, and
takes longer to import than a request takes. Each request has a connection of its own: a person may think for minutes
between two of them, and the broker closes idle ones.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

from broker.errors import Reason
from broker.wire.names import Instance
from lever import socket_path
from lever.exits import CliError, Exit

Answer = dict[str, Any]
_CONNECT_S = 5.0
_ANSWER_S = 60.0
"""A send may wait ten seconds for the first delivery, and behind others for its verification."""
SERVE = "lever broker serve"


def health(path: Path) -> Answer:
    """How the broker behind this socket is. Raises CliError with exit code 4 when none answers."""
    return Line(path).get("/health")


def signed_pair(name: Literal["statement", "envelope"], raw: bytes, signature: bytes) -> Answer:
    """A request body: the exact bytes and their armored signature."""
    return {name: base64.b64encode(raw).decode(), "signature": base64.b64encode(signature).decode()}


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket. answer_s: how long to wait for each part of an answer; None for ever."""

    def __init__(self, path: str, answer_s: float | None) -> None:
        super().__init__("operator")
        self._path = path
        self._answer_s = answer_s

    def connect(self) -> None:
        """As http.client does it, but to a path."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_CONNECT_S)
        self.sock.connect(self._path)
        self.sock.settimeout(self._answer_s)


class _NotConnected(Exception):
    """Nothing was sent. error: what the system said."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Line:
    """The way to the broker behind a socket. Every failure is a CliError with its own words and exit code."""

    def __init__(self, path: Path) -> None:
        self.socket = path.absolute()
        # The system takes few bytes; from a folder nearby the relative path may have fewer.
        self._path = min(str(self.socket), os.path.relpath(self.socket), key=len)
        if len(os.fsencode(self._path)) > socket_path.MAX_BYTES:
            raise CliError(
                f"expected a socket path of at most {socket_path.MAX_BYTES} bytes, found {self.socket}",
                hint="set operator.socket in the configuration, or --socket, to a shorter path",
            )

    def meet(self, instance: Instance) -> None:
        """Make sure, before anything is signed, that a broker of this instance answers."""
        found = str(self.get("/health").get("instance"))
        if found != instance:
            raise CliError(
                f"expected the broker of instance {instance} on {self.socket}, found that of {found}",
                hint="name the right --config, or the right --socket",
                exit=Exit.REFUSED,
            )

    def get(self, route: str, **query: str) -> Answer:
        """What the broker answers to a question that needs no signature."""
        with self._asked("GET", f"{route}?{urlencode(query)}" if query else route, None, _ANSWER_S) as response:
            return self._object(response.read())

    def post(self, route: str, body: Mapping[str, Any]) -> Answer:
        """What the broker answers to a signed request."""
        with self._asked("POST", route, body, _ANSWER_S) as response:
            return self._object(response.read())

    def stream(self, route: str, body: Mapping[str, Any]) -> Iterator[Answer]:
        """The objects of a stream, as they come; it ends when the broker ends it."""
        with self._asked("POST", route, body, None) as response:
            while line := response.readline():
                yield self._object(line)

    @contextmanager
    def _asked(
        self, method: str, route: str, body: Mapping[str, Any] | None, answer_s: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        """The response to a request, once it is known to be a good one. Failures of the transport in words."""
        with closing(_Connection(self._path, answer_s)) as connection:
            try:
                response = _sent(connection, method, route, body)
                if response.status != 200:
                    raise self._refused(response.status, response.read())
                yield response
            except _NotConnected as error:
                raise self._not_connected(error.error) from error
            except TimeoutError as error:
                raise self._lost(f"no answer from {self.socket} in time; the request may have been taken") from error
            except (OSError, http.client.HTTPException) as error:
                raise self._lost(f"{self.socket} hung up; the request may have been taken") from error

    def _not_connected(self, error: OSError) -> CliError:
        if isinstance(error, FileNotFoundError):
            return self._lost(f"expected a broker on {self.socket}, found no such socket", SERVE)
        if isinstance(error, ConnectionRefusedError):
            return self._lost(f"expected a broker on {self.socket}, found a socket that nobody listens on", SERVE)
        if isinstance(error, PermissionError):
            return self._lost(
                f"this user may not open {self.socket}",
                "run this as the broker's user, or have it add your uid to operator.uids",
            )
        return self._lost(f"no line to a broker on {self.socket}: {error}", f"ls -l {self.socket}")

    def _lost(self, text: str, hint: str = "lever broker status") -> CliError:
        return CliError(text, hint=hint, exit=Exit.NOT_REACHABLE)

    def _object(self, raw: bytes) -> Answer:
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise self._lost(f"expected a broker on {self.socket}, found something else: it does not answer in JSON")
        return value

    def _refused(self, status: int, raw: bytes) -> CliError:
        """A refusal in the broker's own words."""
        body = self._object(raw)
        words, hint = (str(body.get(field) or "") for field in ("error", "hint"))
        match status:
            case 400 if body.get("reason") == Reason.BAD_SIGNATURE:
                return CliError(
                    f"the broker does not accept the signature: {words}", hint=hint, exit=Exit.VERIFICATION_FAILED
                )
            case 404:
                return CliError(
                    "the broker has no such route: directives are disabled, or it is an older one",
                    hint=hint or "the configuration needs an operator block: docs/formats/config.md",
                    exit=Exit.REFUSED,
                )
            case _ if status >= 500:
                return CliError(
                    f"the broker can't answer: {words}", hint=hint or "lever doctor", exit=Exit.NOT_REACHABLE
                )
            case _:
                return CliError(f"the broker refused: {words}", hint=hint, exit=Exit.REFUSED)


def _sent(connection: _Connection, method: str, route: str, body: Mapping[str, Any] | None) -> http.client.HTTPResponse:
    try:
        connection.connect()
    except OSError as error:
        raise _NotConnected(error) from error
    raw = None if body is None else json.dumps(body).encode()
    connection.request(method, route, raw, {} if raw is None else {"content-type": "application/json"})
    return connection.getresponse()
