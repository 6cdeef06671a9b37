"""A brokered tool call against the same call through proxies that decide nothing, keep nothing and know no caller."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import proxies
from bench.calls import TEXT
from bench.figures import ROUNDS, Row, aimed, show
from bench.instance import Filled, drive, identity
from bench.proxies import Proxy
from tests.authority.desk import Desk
from tests.rig import Rig

AGENTS = 8
CALLS = int(os.environ.get("BENCH_CALLS", "200"))
LIMITS = "limits: {calls_per_minute: 1000000, inbox_per_minute: 1000000, enrol_per_minute: 1000}"
ECHO = [sys.executable, str(Path(__file__).with_name("echo.py"))]
SERVERS = f"\nservers:\n  s: {{command: {json.dumps(ECHO)}, sandbox: none}}\n"
POLICY = {
    "v": 1,
    "name": "bench",
    "default_action": "deny",
    "tool_allowlist": {"allowed": ["s.echo"], "approval_required": [], "denied": []},
    "tools": {"s.echo": {"class": "read"}},
}
RPC = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "%s", "arguments": {"text": TEXT}}}
)
OURS = {
    "gateway, /mcp": ("/mcp", RPC % "s__echo"),
    "gateway, /tools/call": ("/tools/call", json.dumps({"name": "s__echo", "arguments": {"text": TEXT}})),
}


def gateway(folder: Path) -> None:
    """Intent and outcome durable, over mutual TLS; the same server, client and moment for all."""
    print(f"\ntool calls through the gateway; against {', '.join(proxies.PINNED.values())}; load {_load()}")
    bins = proxies.install(folder / "proxies")
    filled = _office(folder / "gateway")
    with proxies.running(bins, ECHO, folder / "proxies.log") as others:
        try:
            _latency(filled, others)
            _rate(filled, others)
        finally:
            filled.rig.close()
    print(f"  load at the end {_load()}")


def _load() -> str:
    return " ".join(f"{one:.1f}" for one in os.getloadavg())


def _office(folder: Path) -> Filled:
    """A running instance with the echoing server behind it, and agents that may call it."""
    rig = Rig.create(folder, limits=LIMITS)
    rig.config.write_text(rig.config.read_text() + SERVERS)
    Desk(rig.start()).open(POLICY)
    filled = Filled(rig)
    for number in range(AGENTS):
        identity(filled, f"bench-{number}")
    return filled


def _latency(filled: Filled, others: dict[str, Proxy]) -> None:
    mine = {"ca": filled.ca, "identity": filled.identities["bench-0"], "tool": "s__echo"}
    door = f"https://127.0.0.1:{filled.rig.port}"
    targets: dict[str, Any] = {
        "direct": {"argv": ECHO},
        "gateway, /mcp": {**mine, "url": f"{door}/mcp"},
        "gateway, /tools/call": {**mine, "url": f"{door}/tools/call", "json": True},
        **{name: {"url": f"http://127.0.0.1:{one.port}/mcp", "tool": "echo"} for name, one in others.items()},
    }
    rows: Row = {name: [] for name in targets}
    plan = json.dumps({"count": CALLS, "targets": targets}) + "\n"
    for _ in range(ROUNDS):
        done = subprocess.run([sys.executable, "-m", "bench.calls"], input=plan, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        for name, latencies in json.loads(done.stdout).items():
            rows[name].append(statistics.median(latencies))
    for name, values in rows.items():
        show(f"{name}, p50", values, "ms")
    added = {name: [a - b for a, b in zip(rows[name], rows["direct"], strict=True)] for name in rows}
    better = [min(pair) for pair in zip(*(added[name] for name in others), strict=True)]
    for name in OURS:
        aimed(f"{name}: added / better's", [a / b for a, b in zip(added[name], better, strict=True)], "", most=0.8)


def _rate(filled: Filled, others: dict[str, Proxy]) -> None:
    """A light client, so that the servers are measured; each agent has a connection and a session of its own."""
    names = sorted(filled.identities)
    rows: Row = {name: [] for name in (*OURS, *others)}
    spent: Row = {name: [] for name in rows}
    for route, body in OURS.values():  # each agent's own tool process is started, as the proxies' one is
        clients = [{**_client(route, body, identity=filled.identities[cn]), "bodies": [body] * 3} for cn in names]
        _measure(filled.rig.port, filled.ca, filled.pid, clients, [], [])
    for _ in range(ROUNDS):
        for name, (route, body) in OURS.items():
            clients = [_client(route, body, identity=filled.identities[cn]) for cn in names]
            _measure(filled.rig.port, filled.ca, filled.pid, clients, rows[name], spent[name])
        for name, one in others.items():
            clients = [_client("/mcp", RPC % "echo", session=proxies.session(one.port)) for _ in names]
            _measure(one.port, "-", one.pid, clients, rows[name], spent[name])
    for name in rows:
        show(f"{name}, {AGENTS} agents", rows[name], "/s")
        show(f"{name}, its own CPU", spent[name], "ms a call")
    better = [max(pair) for pair in zip(*(rows[name] for name in others), strict=True)]
    for name in OURS:
        aimed(f"{name}: rate / better's", [a / b for a, b in zip(rows[name], better, strict=True)], "", least=1.2)


def _client(route: str, body: str, *, identity: str = "", session: str = "") -> dict[str, Any]:
    headers = {"Host": "127.0.0.1", **proxies.HEADERS}
    headers |= {"MCP-Protocol-Version": proxies.PROTOCOL} if route == "/mcp" else {}
    headers |= {"Mcp-Session-Id": session} if session else {}
    head = f"POST {route} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return {"identity": identity, "head": head, "bodies": [body] * CALLS}


def _measure(
    port: int, ca: str, pid: int, clients: list[dict[str, Any]], rate: list[float], spent: list[float]
) -> None:
    """Calls a second, and what the one process between client and tool server spends on each."""
    before = _cpu_ms(pid)
    answer = drive(port, ca, {"clients": clients, "expect": TEXT})
    calls = len(clients) * CALLS
    rate.append(calls / float(answer["seconds"]))
    spent.append((_cpu_ms(pid) - before) / calls)


def _cpu_ms(pid: int) -> float:
    """Of all its threads, as the kernel counts it; none of its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
