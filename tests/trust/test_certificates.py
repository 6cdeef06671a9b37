"""Certificates and requests, through real handshakes where TLS decides."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from broker.errors import Fatal, Untrusted
from broker.trust.agents import caller_of
from broker.trust.authority import LIFETIME_S, CertificateAuthority
from broker.trust.authority_file import NAME
from broker.trust.csr import parse_csr
from broker.trust.tls import ServerCertificate, server_context
from broker.wire.names import Cn, Generation, Instance, Instant
from tests.rig import SECOND, now

DEMO = Instance("demo")
A, THREE = Cn("worker-a"), Generation(3)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    folder = tmp_path_factory.mktemp("ca")
    folder.chmod(0o700)
    return CertificateAuthority.create(folder, DEMO, now())


def der(pem: str) -> bytes:
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(serialization.Encoding.DER)


def request(key: object, cn: str = "worker-a") -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)])
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, algorithm)  # type: ignore[arg-type]
    return made.public_bytes(serialization.Encoding.PEM)


def test_an_agents_certificate_says_name_and_generation(authority: CertificateAuthority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    at = now()
    issued = authority.issue(A, THREE, key.public_key(), at, 7)
    caller = caller_of(der(issued.pem), DEMO)
    assert (caller.cn, caller.generation) == (A, THREE)
    assert caller.not_after_at == issued.not_after_at
    assert caller.cert_digest == issued.cert_digest == hashlib.sha256(der(issued.pem)).digest()
    assert abs(issued.not_after_at - at - LIFETIME_S * SECOND) < SECOND


def test_a_certificate_of_another_instance_or_purpose_is_no_agents(authority: CertificateAuthority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    issued = authority.issue(A, THREE, key.public_key(), now(), 7)
    with pytest.raises(Untrusted):
        caller_of(der(issued.pem), Instance("prod"))
    with pytest.raises(Untrusted):
        caller_of(der(authority.issue_server(["worker-a"], key.public_key(), now(), 8).pem), DEMO)
    with pytest.raises(Untrusted):
        caller_of(der(authority.pem), DEMO)
    with pytest.raises(Untrusted):
        caller_of(b"no certificate", DEMO)


@pytest.mark.promise("P17")
@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
    ],
    ids=["P-256", "P-384", "Ed25519"],
)
def test_these_keys_are_certified(key: object) -> None:
    assert parse_csr(request(key)).cn == "worker-a"


@pytest.mark.promise("P17")
def test_every_other_key_and_every_other_shape_is_refused() -> None:
    good = request(ec.generate_private_key(ec.SECP256R1()))
    middle = good.index(b"\n", 200) - 20
    flipped = good[:middle] + (b"A" if good[middle : middle + 1] != b"A" else b"B") + good[middle + 1 :]
    bad = [
        request(rsa.generate_private_key(65537, 2048)),
        request(ec.generate_private_key(ec.SECP521R1())),
        good + good,
        good + b"x",
        b" " + good,
        good.replace(b"CERTIFICATE REQUEST", b"CERTIFICATE"),
        good.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST"),
        flipped,
        b"",
        b"\xff" * 100,
    ]
    for pem in bad:
        with pytest.raises(Untrusted):
            parse_csr(pem)


def test_an_authority_is_made_once_and_kept_private(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    folder.mkdir(mode=0o700)
    made = CertificateAuthority.create(folder, DEMO, now())
    with pytest.raises(Fatal):
        CertificateAuthority.create(folder, DEMO, now())
    assert CertificateAuthority.load(folder, DEMO).digest == made.digest
    with pytest.raises(Fatal):
        CertificateAuthority.load(folder, Instance("prod"))
    file = folder / NAME
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(Fatal, match="0644"):
        CertificateAuthority.load(folder, DEMO)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    """One TLS connection over a socket pair, one byte each way; raises what the client sees."""
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as wrapped:
                wrapped.sendall(wrapped.recv(1))
        except OSError:
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    wrapped: ssl.SSLSocket | None = None
    try:
        wrapped = client.wrap_socket(near, server_hostname="localhost", session=session)
        wrapped.sendall(b"x")
        if wrapped.recv(1) != b"x":
            raise ssl.SSLError("the server closed the connection")
        return wrapped
    except OSError:
        (wrapped or near).close()
        raise
    finally:
        thread.join()


@pytest.fixture
def server(authority: CertificateAuthority) -> ssl.SSLContext:
    context = server_context(authority)
    assert ServerCertificate(authority, ["localhost"]).rotate(context, now())
    return context


def client_context(authority: CertificateAuthority, tmp_path: Path, at: Instant | None) -> ssl.SSLContext:
    """A client with a certificate issued at that time; without one for None."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem)
    if at is not None:
        key = ec.generate_private_key(ec.SECP256R1())
        plain = serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        file = tmp_path / "client.pem"
        file.write_bytes(private + authority.issue(A, THREE, key.public_key(), at, 9).pem.encode())
        context.load_cert_chain(file)
    return context


def test_a_certificate_is_optional_but_a_bad_one_is_not(
    authority: CertificateAuthority, server: ssl.SSLContext, tmp_path: Path
) -> None:
    handshake(server, client_context(authority, tmp_path, None)).close()
    handshake(server, client_context(authority, tmp_path, now())).close()
    long_ago = Instant(now() - 2 * LIFETIME_S * SECOND)
    with pytest.raises(OSError):  # noqa: PT011 - an alert or a reset, as the kernel has it
        handshake(server, client_context(authority, tmp_path, long_ago))
    folder = tmp_path / "foreign"
    folder.mkdir(mode=0o700)
    foreign = CertificateAuthority.create(folder, DEMO, now())
    stranger = client_context(foreign, tmp_path, now())
    stranger.load_verify_locations(cadata=authority.pem)
    with pytest.raises(OSError):  # noqa: PT011
        handshake(server, stranger)
