"""Two proxies that others use before a tool server, each in an environment of its own, pinned; facts, not rivals.

They speak plain HTTP, know no caller and write nothing down: what the gateway does beside is its own to carry.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PINNED = {"fastmcp": "fastmcp==4.1.6", "mcp-proxy": "mcp-proxy==0.13.0"}
KEPT = os.environ.get("BENCH_PROXIES", "")  # where their environments are kept from one run to the next
PROTOCOL = "2025-06-18"
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def install(folder: Path) -> dict[str, Path]:
    """The bin folder of each, from the package index the first time."""
    found = {}
    for name, pinned in PINNED.items():
        place = (Path(KEPT) if KEPT else folder) / name
        if not (place / "bin" / name).exists():
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            pip = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", pinned]
            subprocess.run(pip, check=True)
        found[name] = place / "bin"
    return found


@dataclass(frozen=True, slots=True)
class Proxy:
    """One that runs."""

    port: int
    pid: int


@contextmanager
def running(bins: dict[str, Path], command: list[str], log: Path) -> Iterator[dict[str, Proxy]]:
    """Each of them before this command."""
    with log.open("wb") as said, ExitStack() as stack:
        found = {}
        for name, bin in bins.items():
            port = _free_port()
            argv = _words(name, bin, port, command)
            process = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
            stack.callback(process.terminate)
            found[name] = Proxy(port, process.pid)
        for proxy in found.values():
            _wait(proxy.port)
        yield found


def session(port: int) -> str:
    """A new session of one client; its id, empty where there are none."""
    said = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    line = http.client.HTTPConnection("127.0.0.1", port)
    line.request("POST", "/mcp", json.dumps(_message("initialize", said, id=0)), HEADERS)
    answer = line.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    found = answer.headers.get("Mcp-Session-Id", "")
    more = {"Mcp-Session-Id": found, "MCP-Protocol-Version": PROTOCOL}
    line.request("POST", "/mcp", json.dumps(_message("notifications/initialized", {})), {**HEADERS, **more})
    line.getresponse().read()
    line.close()
    return found


def _message(method: str, params: dict[str, object], **more: int) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **more}


def _words(name: str, bin: Path, port: int, command: list[str]) -> list[str]:
    if name == "fastmcp":
        return [str(bin / "python"), str(Path(__file__).with_name("fastmcp_proxy.py")), str(port), *command]
    return [str(bin / "mcp-proxy"), "--port", str(port), "--log-level", "ERROR", "--", *command]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        found: int = probe.getsockname()[1]
    return found


def _wait(port: int) -> None:
    """Until it answers anything at all."""
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/mcp", timeout=10).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            assert time.monotonic() < end, "a proxy did not start"
            time.sleep(0.1)
