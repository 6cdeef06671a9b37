"""What TLS lets in, over real sockets: who must be refused is refused before a byte of HTTP."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from broker.trust.authority import LIFETIME_S, CertificateAuthority
from broker.trust.tls import ServerCertificate, server_context
from broker.wire.names import Cn, Generation, Instance, Instant
from tests.rig import SECOND, now

DEMO, A, ONE = Instance("demo"), Cn("worker-a"), Generation(1)
DAY = LIFETIME_S * SECOND


@dataclass(frozen=True)
class Seen:
    """What a client saw of one connection on which a byte went there and back."""

    version: str | None
    protocol: str | None
    reused: bool
    certificate: bytes
    session: ssl.SSLSession | None


@dataclass(frozen=True)
class Door:
    """A TLS server that sends back one byte; `context` is what is under test, `refused` why it let someone go."""

    context: ssl.SSLContext
    port: int
    refused: queue.Queue[str] = field(default_factory=queue.Queue)

    def refusal(self, client: ssl.SSLContext) -> str:
        """Why the server does not let this client in; fails when it does."""
        with pytest.raises(OSError):  # noqa: PT011 -- an alert, a reset or an end, as the timing has it
            self.call(client)
        return self.refused.get(timeout=20)

    def call(self, client: ssl.SSLContext, session: ssl.SSLSession | None = None, name: str = "localhost") -> Seen:
        """One connection. Raises OSError when the server or the client doesn't go through with it."""
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        with raw, client.wrap_socket(raw, server_hostname=name, session=session) as tls:
            tls.sendall(b"x")
            if tls.recv(1) != b"x":
                raise ConnectionError("closed without an answer")
            shown = tls.getpeercert(binary_form=True)
            assert shown
            reused = bool(tls.session_reused)
            return Seen(tls.version(), tls.selected_alpn_protocol(), reused, shown, tls.session)


@contextmanager
def open_door(context: ssl.SSLContext) -> Iterator[Door]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    if not answer(connection):
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        door = Door(context, listener.getsockname()[1])

        def answer(connection: socket.socket) -> bool:
            """One byte back; an end before the first byte of TLS closes the door."""
            if not connection.recv(1, socket.MSG_PEEK):
                return False
            try:
                with context.wrap_socket(connection, server_side=True) as tls:
                    tls.sendall(tls.recv(1))
            except OSError as error:
                door.refused.put(str(error))
            return True

        try:
            yield door
        finally:
            socket.create_connection(("127.0.0.1", door.port)).close()
            thread.join()


def authority_in(folder: Path) -> CertificateAuthority:
    return CertificateAuthority.create(folder, DEMO, Instant(now() - 30 * DAY))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return authority_in(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def door(authority: CertificateAuthority) -> Iterator[Door]:
    context = server_context(authority)
    ServerCertificate(authority, ["localhost", "127.0.0.1"]).rotate(context, now())
    with open_door(context) as door:
        yield door


def client(trusts: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusts.pem)
    return context


def agent(
    folder: Path, authority: CertificateAuthority, *, at: Instant, issuer: CertificateAuthority, as_server: bool = False
) -> ssl.SSLContext:
    """A client with a certificate that the issuer made at that time."""
    key = ec.generate_private_key(ec.SECP256R1())
    make = (
        issuer.issue_server([A], key.public_key(), at, 9)
        if as_server
        else issuer.issue(A, ONE, key.public_key(), at, 9)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "identity.pem"
    file.write_bytes(private + make.pem.encode())
    context = client(authority)
    context.load_cert_chain(file)
    return context


def test_an_agent_and_a_newcomer_come_in_by_tls_1_3_and_http_1_1(
    door: Door, authority: CertificateAuthority, tmp_path: Path
) -> None:
    for context in (client(authority), agent(tmp_path, authority, at=now(), issuer=authority)):
        context.set_alpn_protocols(["h2", "http/1.1"])
        for name in ("localhost", "127.0.0.1"):
            seen = door.call(context, name=name)
            assert (seen.version, seen.protocol) == ("TLSv1.3", "http/1.1")


@pytest.mark.promise("P16")
@pytest.mark.parametrize(
    ("issued_before_s", "reason"),
    [(0, ""), (LIFETIME_S - 60, ""), (LIFETIME_S, "expired"), (2 * LIFETIME_S, "expired"), (-3600, "not yet valid")],
    ids=["fresh", "in its last minute", "just expired", "long expired", "not yet valid"],
)
def test_a_certificate_outside_its_dates_is_refused_in_the_handshake(
    door: Door, authority: CertificateAuthority, tmp_path: Path, issued_before_s: int, reason: str
) -> None:
    at = Instant(now() - issued_before_s * SECOND)
    context = agent(tmp_path, authority, at=at, issuer=authority)
    if reason:
        assert reason in door.refusal(context)
    else:
        door.call(context)


def test_an_authority_of_the_same_name_is_still_another(
    door: Door, authority: CertificateAuthority, tmp_path: Path
) -> None:
    foreign = authority_in(tmp_path / "ca")
    assert "verify failed" in door.refusal(agent(tmp_path, authority, at=now(), issuer=foreign))
    with pytest.raises(ssl.SSLCertVerificationError):
        door.call(client(foreign))


def test_a_servers_certificate_does_not_come_in_as_an_agent(
    door: Door, authority: CertificateAuthority, tmp_path: Path
) -> None:
    assert "purpose" in door.refusal(agent(tmp_path, authority, at=now(), issuer=authority, as_server=True))


def test_an_agents_certificate_does_not_pass_for_the_broker(authority: CertificateAuthority, tmp_path: Path) -> None:
    context = server_context(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    issued = authority.issue(Cn("localhost"), ONE, key.public_key(), now(), 9)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path / "server.pem"
    file.write_bytes(private + issued.pem.encode())
    context.load_cert_chain(file)
    trusting = client(authority)
    trusting.check_hostname = False
    with open_door(context) as door, pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        door.call(trusting)


def test_an_older_tls_is_refused(door: Door, authority: CertificateAuthority) -> None:
    context = client(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert "protocol" in door.refusal(context).lower()


@pytest.mark.promise("P11")
@pytest.mark.parametrize("group", ["X25519", "secp384r1"])
def test_one_group_is_spoken_so_that_no_hello_costs_much(
    door: Door, authority: CertificateAuthority, group: str
) -> None:
    """The finite fields among OpenSSL's groups can't be asked for from here; they are gone with all the others."""
    context = client(authority)
    try:
        context.set_ecdh_curve(group)
    except ssl.SSLError:
        pytest.skip("this Python's OpenSSL takes no group of that name")
    assert "no suitable key share" in door.refusal(context).lower()


@pytest.mark.promise("P16")
def test_no_connection_is_resumed_so_that_each_certificate_is_looked_at(
    door: Door, authority: CertificateAuthority, tmp_path: Path
) -> None:
    context = agent(tmp_path, authority, at=now(), issuer=authority)
    first = door.call(context)
    assert first.session is None or not first.session.has_ticket
    assert not door.call(context, session=first.session).reused
    # The client would resume if it could: with tickets it does.
    door.context.num_tickets = 1
    door.context.options &= ~ssl.Options.OP_NO_TICKET
    ticketed = door.call(context)
    assert ticketed.session is not None
    assert ticketed.session.has_ticket


def test_the_brokers_certificate_is_another_after_half_its_life(authority: CertificateAuthority) -> None:
    context, certificate, at = server_context(authority), ServerCertificate(authority, ["localhost"]), now()
    with open_door(context) as door:
        assert certificate.rotate(context, Instant(at - DAY // 2 + SECOND))
        before = door.call(client(authority)).certificate
        assert not certificate.rotate(context, at)
        assert door.call(client(authority)).certificate == before
        assert certificate.rotate(context, Instant(at + SECOND))
        after = door.call(client(authority)).certificate
        assert after != before
        # A clock that was set back would leave a certificate that is not valid yet.
        assert certificate.rotate(context, Instant(at - SECOND))
        assert door.call(client(authority)).certificate != after
