"""The operator socket of a broker that answers what a test wants it to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

HEALTH = {"instance": "demo", "version": "0", "pid": 1, "clock_behind": False}


@dataclass
class OperatorSocket:
    """answers: by route, the status and the body (bytes as they are, lists as one JSON object a line, else JSON).

    asked: what came, in order, as (route, body).
    """

    path: Path
    answers: Mapping[str, tuple[int, Any]]
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def body_of(self, route: str) -> bytes:
        body = self.answers[route][1]
        if isinstance(body, list):
            return b"".join(json.dumps(one).encode() + b"\n" for one in body)
        return body if isinstance(body, bytes) else json.dumps(body).encode()


@contextmanager
def operator_socket(path: Path, **answers: tuple[int, Any]) -> Iterator[OperatorSocket]:
    """Serve until the end of the block. A route is written as a name: `directive_send` for /directive/send."""
    known = {"/health": (200, HEALTH), **{f"/{name.replace('_', '/', 1)}": answer for name, answer in answers.items()}}
    fake = OperatorSocket(path, known)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: Any) -> None:
            route = self.path.partition("?")[0]
            fake.asked.append((route, body))
            status, raw = (fake.answers[route][0], fake.body_of(route)) if route in fake.answers else (404, b"{}")
            self.send_response(status)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: Any) -> None:
            """Nothing: what was asked is in `asked`."""

        def address_string(self) -> str:
            return "unix"

    class Server(HTTPServer):
        address_family = socket.AF_UNIX

        def server_bind(self) -> None:
            self.socket.bind(str(path))

    server = Server(("", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        path.unlink()
