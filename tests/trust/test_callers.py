"""Who a client certificate makes its holder: certificates of our own authority, each wrong in one thing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.errors import Untrusted
from broker.trust.agents import caller_of
from broker.wire.names import Instance

DEMO = Instance("demo")
END = datetime(2030, 1, 2, tzinfo=UTC)
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
IDENTITY = "lever://demo/agent/worker-a/generation/3"
# The chain is not what caller_of looks at: TLS has checked it.
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(
    names: tuple[str, ...] = ("worker-a",),
    identities: tuple[str, ...] | None = (IDENTITY,),
    purposes: tuple[x509.ObjectIdentifier, ...] | None = (CLIENT,),
    *,
    dns: tuple[str, ...] = (),
    is_authority: bool | None = None,
    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey = KEY,
) -> bytes:
    """A certificate (DER) that is right in all that is not named."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(END - timedelta(days=1))
        .not_valid_after(END)
    )
    if identities is not None or dns:
        uris = [x509.UniformResourceIdentifier(identity) for identity in identities or ()]
        alternatives = x509.SubjectAlternativeName([*uris, *map(x509.DNSName, dns)])
        builder = builder.add_extension(alternatives, critical=False)
    if purposes is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if is_authority is not None:
        builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.mark.promise("P2")
def test_an_identity_is_read_whole() -> None:
    der = certificate()
    caller = caller_of(der, DEMO)
    spki = KEY.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert (caller.cn, caller.generation) == ("worker-a", 3)
    assert caller.not_after_at == int(END.timestamp()) * 1_000_000
    assert caller.cert_digest == hashlib.sha256(der).digest()
    assert caller.key_digest == hashlib.sha256(spki).digest()


@pytest.mark.parametrize("dns", [(), ("worker-a",)])
def test_a_certificate_without_an_identity_is_of_the_first_generation(dns: tuple[str, ...]) -> None:
    assert caller_of(certificate(identities=None, dns=dns), DEMO).generation == 1


@pytest.mark.promise("P2")
@pytest.mark.parametrize(
    "identity",
    [
        "lever://prod/agent/worker-a/generation/3",
        "lever://demo/agent/worker-b/generation/3",
        "lever://demo/agent/worker-a/generation/0",
        "lever://demo/agent/worker-a/generation/03",
        "lever://demo/agent/worker-a/generation/-3",
        "lever://demo/agent/worker-a/generation/3\n",
        "lever://demo/agent/worker-a/generation/3/",
        "lever://demo/agent/worker-a/generation/3?x",
        "lever://demo/agent/worker-a/generation/" + "9" * 30,
        "lever://demo/agent/worker-a",
        "lever://DEMO/agent/worker-a/generation/3",
        "https://demo/agent/worker-a/generation/3",
        "",
    ],
)
def test_an_identity_that_is_not_this_agents_is_no_identity(identity: str) -> None:
    with pytest.raises(Untrusted):
        caller_of(certificate(identities=(identity,)), DEMO)


@pytest.mark.parametrize(
    "make",
    [
        lambda: certificate(identities=(IDENTITY, IDENTITY)),
        lambda: certificate(identities=(IDENTITY, "lever://demo/agent/worker-a/generation/4")),
        lambda: certificate(names=()),
        lambda: certificate(names=("worker-a", "worker-a")),
        lambda: certificate(names=("worker-b", "worker-a")),
        lambda: certificate(names=("Worker-a",), identities=None),
        lambda: certificate(names=("worker-a ",), identities=None),
        lambda: certificate(names=("-a",), identities=None),
        lambda: certificate(names=("worker-a\x00",), identities=None),
        lambda: certificate(purposes=None),
        lambda: certificate(purposes=(SERVER,)),
        lambda: certificate(purposes=(CLIENT, SERVER)),
        lambda: certificate(purposes=(ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)),
        lambda: certificate(is_authority=True),
        lambda: certificate(key=rsa.generate_private_key(65537, 2048)),
        lambda: certificate() + b"\x00",
        lambda: certificate()[:-1],
        lambda: b"",
    ],
    ids=[
        *(
            "the identity twice",
            "two identities",
            "no CN",
            "the CN twice",
            "two CNs",
            "capital",
            "blank",
            "hyphen",
            "NUL",
        ),
        *(
            "no purpose",
            "a server",
            "both",
            "any purpose",
            "an authority",
            "RSA",
            "a byte more",
            "a byte less",
            "nothing",
        ),
    ],
)
def test_what_is_not_exactly_an_agents_certificate_is_untrusted(make: Callable[[], bytes]) -> None:
    with pytest.raises(Untrusted):
        caller_of(make(), DEMO)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_whatever_byte_is_changed_the_answer_is_a_caller_or_untrusted() -> None:
    der = certificate()
    for at in range(len(der)):
        for change in (0x01, 0x80, 0xFF):
            try:
                caller_of(der[:at] + bytes([der[at] ^ change]) + der[at + 1 :], DEMO)
            except Untrusted:
                continue
