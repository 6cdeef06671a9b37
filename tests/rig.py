"""A real instance for tests: its own folder, its own daemon process, real keys, real sockets."""

from __future__ import annotations

import base64
import os
import signal
import socket
import ssl
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import httpx2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker.wire import envelope, statement
from broker.wire.envelope import Envelope
from broker.wire.names import (
    NAMESPACE_ADMIN,
    NAMESPACE_DIRECTIVE,
    Cn,
    DirectiveId,
    Generation,
    Instance,
    Instant,
)
from broker.wire.statement import Action, BoundAction, Instruction, Statement, Target
from tests.forked import Forked, ForkServer, forkable

LEVER = str(Path(sys.executable).with_name("lever"))
SECOND = 1_000_000
MISS = b'{"error":"not found"}'


def now() -> Instant:
    """The wall clock."""
    return Instant(int(datetime.now(UTC).timestamp() * SECOND))


def wire_time(offset_s: float = 0) -> str:
    """A time on the wire, so many seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=offset_s)).isoformat().replace("+00:00", "Z")


def make_key(path: Path, kind: str = "ed25519") -> Path:
    """A key pair by ssh-keygen, without a passphrase."""
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", path.name, "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


def sign(key: Path, namespace: str, raw: bytes) -> bytes:
    """`ssh-keygen -Y sign` over exactly these bytes."""
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", namespace]
    return subprocess.run(argv, input=raw, capture_output=True, check=True).stdout


def pair(name: str, raw: bytes, signature: bytes) -> dict[str, str]:
    """A signed pair as the operator door takes it."""
    return {name: base64.b64encode(raw).decode(), "signature": base64.b64encode(signature).decode()}


@dataclass
class Rig:
    """One instance. `start`, `kill` and `stop` may be called again and again; state stays in the folder.

    server: forks its processes, unless they need a wrapper or an environment that only a new interpreter heeds.
    clocked: forks its daemon, if that follows another clock.
    """

    server: ClassVar[ForkServer | None] = None
    folder: Path
    port: int
    name: str = "demo"
    tools: str = "tools: {files: [read_file, write_file]}"
    limits: str = "limits: {consume_per_minute: 100000, enrol_per_minute: 100000, renew_per_hour: 100000}"
    clocked: ForkServer | None = None
    daemon: subprocess.Popen[bytes] | Forked | None = None
    log: list[str] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)

    @classmethod
    def create(cls, folder: Path, *, name: str = "demo", limits: str | None = None) -> Rig:
        """An instance by `lever init` with two keys."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        folder.mkdir(parents=True, exist_ok=True)
        rig = cls(folder, port, name)
        rig.cli("init", str(folder), "--name", name, "--make-keys", "--listen", f"127.0.0.1:{port}")
        config = folder / "lever.yaml"
        config.write_text(f"{config.read_text()}\n{rig.tools}\n{rig.limits if limits is None else limits}\n")
        return rig

    @property
    def config(self) -> Path:
        return self.folder / "lever.yaml"

    @property
    def allowed_signers(self) -> Path:
        return self.folder / "allowed_signers"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def socket(self) -> Path:
        return self.state / "operator.sock"

    @property
    def key(self) -> Path:
        return self.folder / "keys" / "operator-1"

    @property
    def second_key(self) -> Path:
        return self.folder / "keys" / "operator-2"

    def cli(
        self, *words: str, expect: int | None = 0, env: dict[str, str] | None = None, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the installed `lever` in the instance's folder."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LEVER_", "SSH_"))} | (env or {})
        if self.server and forkable(environment):
            done = self.server.run([LEVER, *words], cwd=self.folder, env=environment, input=input or "")
        else:
            done = subprocess.run(
                [LEVER, *words], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60,
                **({"stdin": subprocess.DEVNULL} if input is None else {"input": input}),
            )  # fmt: skip
        assert expect is None or done.returncode == expect, (words, done.returncode, done.stdout, done.stderr)
        return done

    def start(
        self, *extra: str, wrapper: tuple[str, ...] = (), env: dict[str, str] | None = None, uid: int | None = None
    ) -> Rig:
        """Start the daemon, as this user if it can be forked; returns once it has said that both doors answer."""
        assert self.daemon is None or self.daemon.poll() is not None
        read, write = os.pipe()
        self.daemon = self._started(
            [LEVER, "broker", "serve", str(self.config), *extra], write, wrapper, env or {}, uid
        )
        os.close(write)
        self._pipe = os.fdopen(read, "rb")
        seen = []
        for line in self._pipe:
            seen.append(line.decode())
            if b"serving" in line:
                break
        else:
            raise AssertionError(f"the daemon ended with {self.daemon.wait()}: {''.join(seen)}")
        self.log += seen
        self._drain()
        return self

    def _started(
        self, argv: list[str], stderr: int, wrapper: tuple[str, ...], env: dict[str, str], uid: int | None
    ) -> subprocess.Popen[bytes] | Forked:
        environment = {**os.environ, **env}
        server = self.clocked or self.server
        if server and not wrapper and forkable(environment, server.environment):
            with Path(os.devnull).open("r+b", buffering=0) as nothing:
                return server.start(argv, [nothing.fileno(), nothing.fileno(), stderr], env=environment, uid=uid)
        return subprocess.Popen(
            [*wrapper, sys.executable, *argv],
            stderr=stderr, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment,
        )  # fmt: skip

    def _drain(self) -> None:
        """Keep reading what the daemon logs, so that its pipe never fills."""
        import threading

        pipe, log = self._pipe, self.log

        def read() -> None:
            with pipe:
                log.extend(line.decode(errors="replace") for line in pipe)

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        """End the daemon by a signal; its exit status."""
        assert self.daemon
        self.daemon.send_signal(how)
        status = self.daemon.wait(timeout=30)
        self._reader.join(timeout=30)
        return status

    def stop(self) -> int:
        """SIGTERM: a clean shutdown."""
        return self.kill(signal.SIGTERM)

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        if self.daemon and self.daemon.poll() is None:
            self.kill()

    # --- the operator -------------------------------------------------------------------------------------------

    @contextmanager
    def line(self) -> Iterator[httpx2.Client]:
        """The operator socket."""
        transport = httpx2.HTTPTransport(uds=str(self.socket))
        with httpx2.Client(transport=transport, base_url="http://operator", timeout=30) as client:
            yield client

    def post(self, route: str, body: Any) -> httpx2.Response:
        with self.line() as client:
            return client.post(route, json=body)

    def statement(self, cn: str = "worker-a", generation: int = 1, **changes: Any) -> Statement:
        """A good statement; keyword arguments replace its fields."""
        at = now()
        good = Statement(
            instance=Instance(self.name),
            directive_id=DirectiveId(str(uuid.uuid4())),
            target=Target(Cn(cn), Generation(generation)),
            issued_at=at,
            not_before=at,
            expires_at=Instant(at + 600 * SECOND),
            action=changes.pop("action", None) or Instruction("Do the thing."),
        )
        return replace(good, **changes)

    def submit(self, raw: bytes, signature: bytes, route: str = "/directive/send") -> httpx2.Response:
        return self.post(route, pair("statement", raw, signature))

    def send_raw(
        self,
        raw: bytes,
        *,
        key: Path | None = None,
        namespace: str = NAMESPACE_DIRECTIVE,
        route: str = "/directive/send",
    ) -> httpx2.Response:
        """Sign these bytes, whatever they are, and submit them."""
        return self.submit(raw, sign(key or self.key, namespace, raw), route)

    def send(self, cn: str = "worker-a", generation: int = 1, *, key: Path | None = None, **changes: Any) -> str:
        """Send a directive that must be admitted; its id."""
        value = self.statement(cn, generation, **changes)
        answer = self.send_raw(statement.encode(value), key=key)
        assert answer.status_code == 200, answer.text
        assert answer.json()["id"] == value.directive_id
        return value.directive_id

    def envelope(self, op: str, issued_at: Instant | None = None, **params: str) -> bytes:
        params = {"nonce": uuid.uuid4().hex, **params}
        return envelope.encode(Envelope(Instance(self.name), op, params, issued_at or now()))

    def admin(self, route: str, op: str, *, key: Path | None = None, **params: str) -> httpx2.Response:
        raw = self.envelope(op, **params)
        return self.post(route, pair("envelope", raw, sign(key or self.key, NAMESPACE_ADMIN, raw)))

    def revoke(self, id: str) -> httpx2.Response:
        return self.admin("/directive/revoke", "revoke", id=id)

    def listed(self, **params: str) -> list[dict[str, Any]]:
        answer = self.admin("/directive/list", "list", **params)
        assert answer.status_code == 200, answer.text
        rows: list[dict[str, Any]] = answer.json()["directives"]
        return rows

    def row(self, id: str) -> dict[str, Any]:
        (row,) = self.listed(id=id)
        return row

    def invite(self, cn: str, **params: str) -> str:
        """An invitation; the ticket."""
        ticket = uuid.uuid4().hex
        digest = sha256(ticket.encode()).hexdigest()
        answer = self.admin("/admin/agent_invite", "agent_invite", cn=cn, ticket_digest=digest, **params)
        assert answer.status_code == 200, answer.text
        self.ca_pem: str = answer.json()["broker_ca"]
        return ticket

    def enrol(self, cn: str = "worker-a") -> Agent:
        """Invite and enrol an agent."""
        ticket = self.invite(cn)
        agent = Agent(self, cn)
        answer = agent.redeem(ticket)
        assert answer.status_code == 200, answer.text
        return agent.certified(answer.json()["cert"])


class Agent:
    """An agent's own key and certificate, and its line to the agent door."""

    def __init__(self, rig: Rig, cn: str) -> None:
        self.rig, self.cn = rig, cn
        rig.agents.append(self)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = ""
        self._client: httpx2.Client | None = None

    def csr(self, cn: str | None = None, key: Any = None) -> str:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn or self.cn)])
        request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key or self.key, hashes.SHA256())
        return request.public_bytes(serialization.Encoding.PEM).decode()

    def private_pem(self) -> str:
        plain = serialization.NoEncryption()
        pem = self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        return pem.decode()

    def context(self, certificate: str | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.rig.ca_pem)
        if pem := certificate or self.certificate:
            path = self.rig.folder / f"agent-{uuid.uuid4().hex}.pem"
            path.write_text(self.private_pem() + pem)
            context.load_cert_chain(path)
            path.unlink()
        return context

    def client(self, certificate: str | None = None) -> httpx2.Client:
        """A new connection pool with this identity."""
        base = f"https://127.0.0.1:{self.rig.port}"
        return httpx2.Client(verify=self.context(certificate), base_url=base, trust_env=False, timeout=60)

    def certified(self, pem: str) -> Agent:
        self.close()
        self.certificate = pem
        return self

    def close(self) -> None:
        if self._client:
            self._client.close()
        self._client = None

    def post(self, route: str, body: Any) -> httpx2.Response:
        """A request over this agent's own kept-alive connection."""
        self._client = self._client or self.client()
        return self._client.post(route, json=body)

    def redeem(self, ticket: str, csr: str | None = None) -> httpx2.Response:
        with self.client() as client:
            return client.post("/enrol", json={"ticket": ticket, "csr": csr or self.csr()})

    def renew(self, key: Any = None) -> httpx2.Response:
        return self.post("/renew", {"csr": self.csr(key=key)})

    def consume(self, id: str, attempt: str | None = None) -> httpx2.Response:
        return self.post("/directive/consume", {"id": id} | ({"attempt": attempt} if attempt else {}))

    def check(self, id: str) -> httpx2.Response:
        return self.post("/directive/check", {"id": id})

    def report(self, id: str, outcome: str = "done", note: str = "") -> httpx2.Response:
        return self.post("/directive/report", {"id": id, "outcome": outcome, "note": note})

    def get(self, route: str) -> httpx2.Response:
        self._client = self._client or self.client()
        return self._client.get(route)

    def inbox(self, query: str = "") -> list[str]:
        return [pointer["id"] for pointer in self.get(f"/inbox{query}").json()["pointers"]]


def is_miss(response: httpx2.Response) -> bool:
    """Exactly the one miss, headers included (but for the date)."""
    headers = {k: v for k, v in response.headers.items() if k != "date"}
    expected = {"content-type": "application/json", "content-length": str(len(MISS))}
    return response.status_code == 404 and response.content == MISS and headers == expected


WRITE_FILE = BoundAction("tool_call", "files", "write_file", {"path": "a.txt", "text": "hello"})
ACTIONS: list[Action] = [
    WRITE_FILE,
    BoundAction("approval", "files", "read_file", {"path": "a.txt"}),
    Instruction("Finish the report first."),
]
