"""`make bench`: real daemons, everything interleaved in one run, medians with spread (minimum to maximum).

Each line says what is aimed at. What misses its aim is said; docs/decisions/ says what limits it. Run as
`python -m bench PART...` for some of its parts.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.figures import ROUNDS, Row, aimed, show
from bench.gateway import gateway
from bench.instance import Filled, load, make
from bench.judging import judging
from bench.misses import misses
from broker.wire import statement
from broker.wire.names import NAMESPACE_DIRECTIVE
from tests.rig import Rig, sign


def append_and_sync(file: int, count: int) -> float:
    """Milliseconds, p50, of appending 512 bytes and fdatasync."""
    latencies = []
    for _ in range(count):
        begun = time.perf_counter()
        os.write(file, b"x" * 512)
        getattr(os, "fdatasync", os.fsync)(file)
        latencies.append(time.perf_counter() - begun)
    return statistics.median(latencies) * 1e3


def consume(folder: Path) -> None:
    """One client against constant + sync; sixteen against the constant's throughput."""
    print("\nconsume, durable, over mutual TLS")
    agents, singles, crowd = 16, 300, 250
    filled = make(folder / "consume", agents, ROUNDS * (singles + crowd))
    names = sorted(filled.identities)
    argv = [sys.executable, "-m", "bench.constant", str(filled.rig.state), filled.rig.name]
    rows: Row = {name: [] for name in ("consume", "constant", "sync", "ratio", "rate", "constant rate", "share")}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as constant:
        assert constant.stdout
        port = int(constant.stdout.readline())
        body = ['{"id":"' + "x" * 36 + '"}']
        with (filled.rig.state / "journal" / "bench").open("wb") as file:
            for _ in range(ROUNDS):
                one = load(filled, filled.rig.port, [(names[0], filled.take(names[0], singles))])["p50_ms"]
                bare = load(filled, port, [(names[0], body * singles)])["p50_ms"]
                sync = append_and_sync(file.fileno(), singles)
                many = load(filled, filled.rig.port, [(name, filled.take(name, crowd)) for name in names])
                most = load(filled, port, [(name, body * crowd) for name in names])
                rates = [agents * crowd / answer["seconds"] for answer in (many, most)]
                for name, value in zip(
                    rows, (one, bare, sync, one / (bare + sync), *rates, rates[0] / rates[1]), strict=True
                ):
                    rows[name].append(value)
    (filled.rig.state / "journal" / "bench").unlink()
    show("consume, 1 client, p50", rows["consume"], "ms")
    show("constant answer, p50", rows["constant"], "ms")
    show("512 bytes + fdatasync, p50", rows["sync"], "ms")
    aimed("consume / (constant + sync)", rows["ratio"], "", most=1.5)
    show("consume, 16 clients", rows["rate"], "/s")
    show("constant answer, 16 clients", rows["constant rate"], "/s")
    aimed("consume / constant", rows["share"], "", least=0.40)
    filled.rig.close()


def stored(folder: Path) -> None:
    """What 100,000 stored directives cost a consume; what a tombstone and an idle connection cost in memory."""
    print("\nwith 100,000 directives stored")
    each = 300
    few = make(folder / "few", 1, ROUNDS * each, active=100)
    many = make(folder / "many", 1, ROUNDS * each, active=100_000)
    ratios = []
    for _ in range(ROUNDS):
        pair = [load(f, f.rig.port, [("bench-0", f.take("bench-0", each))])["p50_ms"] for f in (many, few)]
        ratios.append(pair[0] / pair[1])
    aimed("consume p50, 100,000 / 100 stored", ratios, "", most=1.10)
    few.rig.close(), many.rig.close()


def memory(folder: Path) -> None:
    """Resident bytes, as the kernel counts them for the daemon's process."""
    print("\nresident memory")
    few = make(folder / "none", 1, 1, consumed=1000)
    many = make(folder / "tombstones", 1, 1, consumed=101_000)
    aimed("a tombstone", [(resident(many.pid) - resident(few.pid)) / 100_000], "bytes", most=400)
    many.rig.close()
    before, lines = resident(few.pid), 250
    held = idle(few, lines)
    aimed("an idle connection", [(resident(few.pid) - before) / lines / 1024], "KB", most=60)
    for line in held:
        line.close()
    few.rig.close()


def idle(filled: Filled, count: int) -> list[socket.socket]:
    """Connections of an agent, each with one answered request."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(filled.ca)
    context.load_cert_chain(filled.identities["bench-0"])
    held: list[socket.socket] = []
    for _ in range(count):
        line = http.client.HTTPSConnection("127.0.0.1", filled.rig.port, context=context)
        line.request("GET", "/nothing", headers={"Host": "127.0.0.1"})
        line.getresponse().read()
        assert line.sock
        held.append(line.sock)
    return held


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def send(folder: Path) -> None:
    """Directives a second with 8 clients, against bare ssh-keygen processes at the same parallelism."""
    print("\nsend, 8 clients")
    rig = Rig.create(
        folder / "send", limits="limits: {max_active_per_agent: 1000000, pointers_per_minute: 6000}"
    ).start()
    rig.enrol("worker-a")
    rows: Row = {"send": [], "bare": [], "share": []}
    for _ in range(ROUNDS):
        signed = [(raw, sign(rig.key, NAMESPACE_DIRECTIVE, raw)) for raw in (fresh(rig) for _ in range(160))]
        ours, bare = in_parallel(8, signed, sender(rig)), in_parallel(8, signed, verifier(rig, folder))
        for name, value in zip(rows, (ours, bare, ours / bare), strict=True):
            rows[name].append(value)
    show("send", rows["send"], "/s")
    show("bare ssh-keygen -Y verify", rows["bare"], "/s")
    aimed("send / bare", rows["share"], "", least=0.85)
    rig.close()


def fresh(rig: Rig) -> bytes:
    return statement.encode(rig.statement())


Signed = tuple[bytes, bytes]


def sender(rig: Rig) -> Callable[[], Callable[[Signed], None]]:
    """Each client has a connection of its own to the operator socket."""

    class UnixLine(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.connect(str(rig.socket))

    def client() -> Callable[[Signed], None]:
        line = UnixLine("operator")

        def one(signed: Signed) -> None:
            pair = {
                name: base64.b64encode(raw).decode()
                for name, raw in zip(("statement", "signature"), signed, strict=True)
            }
            line.request("POST", "/directive/send", json.dumps(pair), {"Content-Type": "application/json"})
            answer = line.getresponse()
            body = answer.read()
            assert answer.status == 200, body

        return one

    return client


def verifier(rig: Rig, folder: Path) -> Callable[[], Callable[[Signed], None]]:
    argv = ["ssh-keygen", "-Y", "verify", "-f", str(rig.allowed_signers), "-I", f"operator@{rig.name}"]
    argv += ["-n", NAMESPACE_DIRECTIVE, "-s"]

    def client() -> Callable[[Signed], None]:
        file = folder / f"signature-{threading.get_ident()}"

        def one(signed: Signed) -> None:
            file.write_bytes(signed[1])
            subprocess.run([*argv, str(file)], input=signed[0], capture_output=True, check=True)

        return one

    return client


def in_parallel(clients: int, work: list[Signed], make_client: Callable[[], Callable[[Signed], None]]) -> float:
    """How many a second, with so many clients taking from one list."""
    queue = list(work)
    failed: list[BaseException] = []

    def go() -> None:
        one = make_client()
        try:
            while queue:
                one(queue.pop())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=go) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return len(work) / (time.perf_counter() - begun)


def main() -> None:
    print(f"{ROUNDS} rounds; medians (minimum to maximum); {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory(prefix="lever-bench-") as name:
        parts = {part.__name__: part for part in (consume, stored, memory, send, misses, judging, gateway)}
        for part in sys.argv[1:] or parts:
            parts[part](Path(name))


if __name__ == "__main__":
    main()
