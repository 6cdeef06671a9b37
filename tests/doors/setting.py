"""A certificate authority, a door with a few routes, and a client that can misbehave."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker.doors.http import App, Request, Response, Route
from broker.doors.listen import Door, Limits
from broker.doors.socket import bind_tcp
from broker.errors import Malformed

PATIENT_S = 20.0  # how long a test waits for what must happen
LONG = 60.0  # a deadline that must not be the one that strikes
SHORT = 0.1  # one that must
PATIENT: Any = Limits(LONG, LONG, LONG, LONG, LONG, LONG, LONG)  # Any: replace() by a parameter's name
MAX_BODY_BYTES = 1000
LARGE_BYTES = 16 << 20  # more than the buffers of the system and of both ends


class Pki:
    """One authority, one server, and clients by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._ca = self._build("test ca", self._key, None)
        (folder / "ca.pem").write_bytes(self._ca.public_bytes(serialization.Encoding.PEM))
        self._issue("server")

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(self._folder / "ca.pem")
        context.load_cert_chain(self._folder / "server.pem", self._folder / "server.key")
        return context

    def client_context(self, cn: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._folder / "ca.pem")
        if cn is not None:
            if not (self._folder / f"{cn}.pem").exists():
                self._issue(cn)
            context.load_cert_chain(self._folder / f"{cn}.pem", self._folder / f"{cn}.key")
        return context

    def der(self, cn: str) -> bytes:
        certificate = x509.load_pem_x509_certificate((self._folder / f"{cn}.pem").read_bytes())
        return certificate.public_bytes(serialization.Encoding.DER)

    def _issue(self, cn: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._build(cn, key, self._ca)
        plain = serialization.NoEncryption()
        (self._folder / f"{cn}.key").write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        )
        (self._folder / f"{cn}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _build(self, cn: str, key: ec.EllipticCurvePrivateKey, ca: x509.Certificate | None) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)])
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        is_ca, now = ca is None, datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name if ca is None else ca.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
            .add_extension(x509.KeyUsage(True, False, False, False, False, is_ca, is_ca, False, False), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256())


@dataclass
class Routes:
    """Handlers that say what reached them. held: a request that works until it is released."""

    reached: list[str] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    stream_closed: asyncio.Event = field(default_factory=asyncio.Event)
    pieces: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    cancelled: bool = False

    def table(self) -> list[Route]:
        json_type = "application/json"
        return [
            Route("POST", "/echo", self._echo, json_type, MAX_BODY_BYTES),
            Route("GET", "/here", self._here),
            Route("GET", "/miss", self._miss),
            Route("POST", "/held", self._held, json_type, MAX_BODY_BYTES),
            Route("GET", "/poll", self._poll),
            Route("GET", "/poll-then-work", self._poll_then_work),
            Route("GET", "/work-then-poll", self._work_then_poll),
            Route("GET", "/stream", self._stream),
            Route("GET", "/large", self._large),
            Route("GET", "/malformed", self._malformed),
            Route("GET", "/broken", self._broken),
        ]

    async def _echo(self, request: Request) -> Response:
        self.reached.append("echo")
        return Response(200, request.body)

    async def _here(self, request: Request) -> Response:
        self.reached.append("here")
        count = request.connection["count"] = int(str(request.connection.get("count", 0))) + 1
        seen: dict[str, Any] = {"count": count, "uid": request.peer_uid, "query": dict(request.query)}
        seen["trailer"] = b"x-trailer" in request.headers
        seen["der"] = (request.client_certificate_der or b"").hex()
        return Response(200, json.dumps(seen).encode())

    async def _miss(self, request: Request) -> Response:
        return Response(404, b'{"error":"not found"}')

    async def _held(self, request: Request) -> Response:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.finished.set()
        return Response(200, request.body)

    async def _poll(self, request: Request) -> Response:
        self.entered.set()
        await request.wait(asyncio.Event().wait())
        self.finished.set()
        return Response(200, b'{"pointers":[]}')

    async def _poll_then_work(self, request: Request) -> Response:
        await request.wait(self._never())
        return await self._held(request)

    async def _work_then_poll(self, request: Request) -> Response:
        await self._held(request)
        await request.wait(self.release.wait())
        await asyncio.sleep(0)  # nothing of the interruption is left over
        await request.wait(asyncio.Event().wait())
        await asyncio.sleep(0)
        return Response(200, b"{}")

    async def _never(self) -> None:
        self.entered.set()
        await asyncio.Event().wait()

    async def _stream(self, request: Request) -> Response:
        return Response(200, content_type="application/x-ndjson", stream=self._lines())

    async def _lines(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self.pieces.get()) is not None:
                self.entered.set()
                yield piece
        finally:
            self.stream_closed.set()

    async def _large(self, request: Request) -> Response:
        self.entered.set()
        return Response(200, bytes(LARGE_BYTES))

    async def _malformed(self, request: Request) -> Response:
        raise Malformed("id", "missing")

    async def _broken(self, request: Request) -> Response:
        raise RuntimeError("a secret cause")


@dataclass
class Answer:
    """One response as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """One connection, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def answer(self) -> Answer:
        """The next response. A response with neither length nor chunks has no body here."""
        async with asyncio.timeout(PATIENT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")[:-2]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            return Answer(int(first.split()[1]), headers, body, head + body)

    async def ask(self, raw: bytes) -> Answer:
        self.send(raw)
        return await self.answer()

    async def chunk(self) -> bytes:
        """The next chunk of a stream; empty at its proper end."""
        async with asyncio.timeout(PATIENT_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def end(self) -> bytes:
        """All that still comes, until the door closes the connection."""
        received = b""
        async with asyncio.timeout(PATIENT_S):
            try:
                while piece := await self.reader.read(65536):
                    received += piece
            except (ConnectionError, ssl.SSLError):
                pass
        return received

    def pause(self) -> None:
        """Read nothing more from the socket."""
        self._transport.pause_reading()

    def resume(self) -> None:
        self._transport.resume_reading()

    @property
    def _transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self.writer.transport)

    def leave(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def dial(door: Door, context: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    """A connection to the door, by whichever kind of socket it has."""
    address = door.addresses[0]
    async with asyncio.timeout(PATIENT_S):
        if isinstance(address, str):
            reader, writer = await asyncio.open_unix_connection(address)
        else:
            server_hostname = "localhost" if context else None
            host, port = address[:2]
            reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=server_hostname)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def opened(
    routes: Routes, context: ssl.SSLContext | None = None, limits: Limits | None = None
) -> AsyncIterator[Door]:
    """A door on a free port of the loopback."""
    door = Door("test", App(routes.table(), ["localhost", "127.0.0.1"]), bind_tcp("127.0.0.1", 0), context, limits)
    await door.start()
    try:
        yield door
    finally:
        await door.close(0.0)


def post(path: str, body: bytes = b"{}", *extra: str, content_type: str = "application/json") -> bytes:
    """A well-formed POST."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *extra]
    if content_type:
        lines.append(f"Content-Type: {content_type}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(path: str, *extra: str) -> bytes:
    """A well-formed GET."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *extra, "", ""]).encode()


def chunked(path: str, body: bytes) -> bytes:
    """A POST whose body is in chunks, framed already."""
    return get(path, "Content-Type: application/json", "Transfer-Encoding: chunked").replace(b"GET", b"POST") + body
