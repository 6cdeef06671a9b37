"""A broker's agent door for client tests: real TLS 1.3 and a CA of its own, rules no deeper than the client can see.

The end-to-end tests run the same client against the real daemon; they are what keeps this fake honest.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

DAY = timedelta(hours=24)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class FakeCa:
    """A CA that signs whatever a test wants signed."""

    def __init__(self, name: str = "lever demo CA") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(name))
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 3650 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def sign(
        self,
        public_key: ec.EllipticCurvePublicKey,
        cn: str,
        *sans: x509.GeneralName,
        begin: datetime | None = None,
        life: timedelta = DAY,
        ca: bool = False,
    ) -> x509.Certificate:
        begin = begin or datetime.now(UTC) - timedelta(seconds=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(cn))
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + life)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def sign_agent(
        self, public_key: Any, cn: str, generation: int, begin: datetime | None = None, life: timedelta = DAY
    ) -> x509.Certificate:
        uri = x509.UniformResourceIdentifier(f"lever://demo/agent/{cn}/generation/{generation}")
        return self.sign(public_key, cn, uri, begin=begin, life=life)


def pem_of(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def key_of(public_key: Any) -> bytes:
    return bytes(public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


@dataclass
class Call:
    """One request as it arrived. caller: the certificate shown, if any."""

    method: str
    path: str
    body: Any
    caller: x509.Certificate | None


@dataclass
class _Ticket:
    cn: str
    key: bytes | None = None
    answer: str = ""


@dataclass
class FakeBroker:
    """Serves from `with` to its end. What a test sets before a call decides how the call ends.

    drops: how many more answers of a path to lose after the work was done; answers: fixed (status, body, headers) of a
    path; before: called with each request before it is worked on; life, begin: of the certificates it issues.
    """

    ca: FakeCa = field(default_factory=FakeCa)
    drops: Counter[str] = field(default_factory=Counter)
    answers: dict[str, tuple[int, bytes, dict[str, str]]] = field(default_factory=dict)
    before: Callable[[Call], None] = lambda call: None
    tickets: dict[str, _Ticket] = field(default_factory=dict)
    directives: dict[str, bytes] = field(default_factory=dict)
    generations: Counter[str] = field(default_factory=Counter)
    revoked: set[str] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    issue: Callable[[Any, str, int], x509.Certificate] | None = None
    _renewals: dict[bytes, tuple[bytes, str]] = field(default_factory=dict)
    _attempts: dict[str, tuple[bytes, str]] = field(default_factory=dict)

    def invite(self, cn: str) -> str:
        ticket = secrets.token_urlsafe(32)
        self.tickets[ticket] = _Ticket(cn)
        return ticket

    def bundle(self, cn: str, ticket: str | None = None) -> bytes:
        return json.dumps(
            {
                "ticket": ticket or self.invite(cn),
                "broker_ca": self.ca.pem,
                "broker_url": self.url,
                "agent_cn": cn,
            }
        ).encode()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_3
        self.tls.num_tickets = 0
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.tls.load_verify_locations(cadata=self.ca.pem)
        self.present(self.ca, "127.0.0.1")
        self._lock = threading.Lock()
        self._server = _Server(self, self.tls)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the door; once more does nothing."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def present(self, ca: FakeCa, name: str) -> None:
        """From the next handshake on, show a server certificate of this CA for this name or address."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            san: x509.GeneralName = x509.IPAddress(ip_address(name))
        except ValueError:
            san = x509.DNSName(name)
        pem = pem_of(ca.sign(key.public_key(), name, san)).encode()
        pem += key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "server.pem"
            file.write_bytes(pem)
            self.tls.load_cert_chain(file)

    def answer(self, call: Call) -> tuple[int, bytes, dict[str, str]] | None:
        """Status, body and headers; None to drop the connection after the work."""
        self.before(call)
        with self._lock:
            self.calls.append(call)
            path = call.path.partition("?")[0]
            status, value = self._work(path, call)
            if self.drops[path] > 0:
                self.drops[path] -= 1
                return None
        if path in self.answers:
            return self.answers[path]
        return status, value if isinstance(value, bytes) else json.dumps(value).encode(), {}

    def _work(self, path: str, call: Call) -> tuple[int, Any]:
        if path == "/enrol":
            return self._enrol(call.body)
        cn = _cn(call.caller) if call.caller else ""
        if call.caller is None or cn in self.revoked:
            return 403, {"error": "forbidden"}
        if path == "/renew":
            return self._renew(call.caller, cn, call.body)
        if path == "/directive/consume":
            return self._consume(call.caller, call.body)
        if path == "/directive/check" and call.body["id"] in self.directives:
            return 200, {"id": call.body["id"], "state": "active"}
        if path == "/inbox":
            return 200, {"pointers": [{"id": i, "notified_at": "2026-01-01T00:00:00Z"} for i in self.directives]}
        return 404, {"error": "not found"}

    def _issue(self, key: Any, cn: str) -> str:
        issue = self.issue or self.ca.sign_agent
        return pem_of(issue(key, cn, self.generations[cn]))

    def _enrol(self, body: Any) -> tuple[int, Any]:
        request = x509.load_pem_x509_csr(body["csr"].encode())
        ticket, key = self.tickets.get(body["ticket"]), key_of(request.public_key())
        if ticket is None or ticket.cn != _cn(request) or ticket.key not in (None, key):
            return 403, {"error": "forbidden"}
        if ticket.key is None:
            self.generations[ticket.cn] += 1
            ticket.key, ticket.answer = key, self._issue(request.public_key(), ticket.cn)
        return 200, {"cert": ticket.answer}

    def _renew(self, caller: x509.Certificate, cn: str, body: Any) -> tuple[int, Any]:
        request = x509.load_pem_x509_csr(body["csr"].encode())
        key, old = key_of(request.public_key()), caller.fingerprint(hashes.SHA256())
        if old not in self._renewals:
            self._renewals[old] = key, self._issue(request.public_key(), cn)
        earlier, answer = self._renewals[old]
        if earlier != key:
            self.revoked.add(cn)  # a fork freezes the agent
            return 403, {"error": "forbidden"}
        return 200, {"cert": answer}

    def _consume(self, caller: x509.Certificate, body: Any) -> tuple[int, Any]:
        id, attempt = body["id"], (key_of(caller.public_key()), body.get("attempt", ""))
        if id not in self.directives or self._attempts.setdefault(id, attempt) != attempt:
            return 404, {"error": "not found"}
        return 200, self.directives[id]


def _cn(named: x509.Certificate | x509.CertificateSigningRequest) -> str:
    return str(named.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, broker: FakeBroker, tls: ssl.SSLContext) -> None:
        self.broker, self.tls = broker, tls
        super().__init__(("127.0.0.1", 0), _Requests)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that ends the handshake is what some tests want to see: no noise about it."""


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one write an answer: the second of two would wait for the first one's acknowledgement
    server: _Server

    def setup(self) -> None:
        self.request.settimeout(10)
        with socket.socket(fileno=os.dup(self.request.fileno())) as raw:
            raw.settimeout(10)
            try:
                self.request = self.server.tls.wrap_socket(self.request, server_side=True)
            except ssl.SSLError:
                # Closing with bytes unread would reset the connection, and the client might never see the alert.
                while raw.recv(65536):
                    pass
                raise
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _serve(self, body: Any) -> None:
        der = self.request.getpeercert(binary_form=True)
        caller = x509.load_der_x509_certificate(der) if der else None
        answer = self.server.broker.answer(Call(self.command, self.path, body, caller))
        self.close_connection = True
        if answer is None:
            return
        status, content, headers = answer
        self.send_response(status)
        for name, value in (
            {"content-type": "application/json", "content-length": str(len(content))} | headers
        ).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: a test prints what it needs."""
