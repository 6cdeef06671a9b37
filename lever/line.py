"""The line to a broker: HTTP over the operator socket, and each way it can fail as a failure of the command."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx2

from broker.errors import Reason
from broker.wire.names import Instance
from lever.exits import CliError, Exit

Answer = dict[str, Any]
_TIMEOUT = httpx2.Timeout(60, connect=5)
"""A send may wait ten seconds for the first delivery, and behind others for its verification."""
_MAX_PATH_BYTES = 103  # macOS; Linux has 107
_SERVE = "lever broker serve"


def health(socket: Path) -> Answer:
    """How the broker behind this socket is. Raises CliError with exit code 4 when none answers."""
    with Line(socket) as line:
        return line.get("/health")


def signed_pair(name: Literal["statement", "envelope"], raw: bytes, signature: bytes) -> Answer:
    """A request body: the exact bytes and their armored signature."""
    return {name: base64.b64encode(raw).decode(), "signature": base64.b64encode(signature).decode()}


class Line:
    """An open line to the broker behind a socket. Every failure is a CliError with its own words and exit code."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket.absolute()
        # The system takes few bytes; from a folder nearby the relative path may have fewer.
        path = min(str(self.socket), os.path.relpath(self.socket), key=len)
        if len(os.fsencode(path)) > _MAX_PATH_BYTES:
            raise CliError(
                f"expected a socket path of at most {_MAX_PATH_BYTES} bytes, found {self.socket}",
                hint="set operator.socket in the configuration, or --socket, to a shorter path",
            )
        transport = httpx2.HTTPTransport(uds=path)
        self._client = httpx2.Client(transport=transport, base_url="http://operator", timeout=_TIMEOUT, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()

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
        with self._told():
            return self._answer(self._client.get(route, params=query))

    def post(self, route: str, body: Mapping[str, Any]) -> Answer:
        """What the broker answers to a signed request."""
        with self._told():
            return self._answer(self._client.post(route, json=body))

    def stream(self, route: str, body: Mapping[str, Any]) -> Iterator[Answer]:
        """The objects of a stream, as they come; it ends when the broker ends it."""
        endless = httpx2.Timeout(_TIMEOUT.connect, read=None)
        with self._told(), self._client.stream("POST", route, json=body, timeout=endless) as response:
            if response.status_code != 200:
                response.read()
                self._answer(response)
            for line in response.iter_lines():
                yield self._object(line.encode())

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Failures of the transport, in words."""
        try:
            yield
        except httpx2.ConnectError as error:
            raise self._not_connected(_os_error(error)) from error
        except httpx2.ConnectTimeout as error:
            raise self._lost(f"the broker on {self.socket} does not accept connections") from error
        except httpx2.TimeoutException as error:
            raise self._lost(
                f"the broker on {self.socket} did not answer in time; it may have taken the request"
            ) from error
        except httpx2.TransportError as error:
            raise self._lost(f"the broker on {self.socket} hung up; it may have taken the request") from error

    def _not_connected(self, error: OSError | None) -> CliError:
        if isinstance(error, FileNotFoundError):
            return self._lost(f"expected a broker on {self.socket}, found no such socket", _SERVE)
        if isinstance(error, ConnectionRefusedError):
            return self._lost(f"expected a broker on {self.socket}, found a socket that nobody listens on", _SERVE)
        if isinstance(error, PermissionError):
            return self._lost(
                f"this user may not open {self.socket}",
                "run this as the broker's user, or have it add your uid to operator.uids",
            )
        return self._lost(f"no line to a broker on {self.socket}: {error or 'unknown error'}", f"ls -l {self.socket}")

    def _lost(self, text: str, hint: str = "lever broker status") -> CliError:
        return CliError(text, hint=hint, exit=Exit.NOT_REACHABLE)

    def _answer(self, response: httpx2.Response) -> Answer:
        if response.status_code == 200:
            return self._object(response.content)
        raise self._refused(response)

    def _object(self, raw: bytes) -> Answer:
        try:
            value = json.loads(raw)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise self._lost(f"expected a broker on {self.socket}, found something else: it does not answer in JSON")
        return value

    def _refused(self, response: httpx2.Response) -> CliError:
        """A refusal in the broker's own words."""
        body = self._object(response.content)
        words, hint = (str(body.get(field) or "") for field in ("error", "hint"))
        match response.status_code:
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
            case status if status >= 500:
                return CliError(
                    f"the broker can't answer: {words}", hint=hint or "lever doctor", exit=Exit.NOT_REACHABLE
                )
            case _:
                return CliError(f"the broker refused: {words}", hint=hint, exit=Exit.REFUSED)


def _os_error(error: BaseException) -> OSError | None:
    """What the system said, underneath the HTTP client's own exceptions."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, OSError):
        seen = seen.__cause__ or seen.__context__
    return seen
