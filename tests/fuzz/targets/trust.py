"""What broker/trust reads: requests, certificates, the authority's own file, allowed_signers, ssh-keygen's words."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.errors import Fatal, Untrusted
from broker.trust import agents, authority, authority_file, diagnosis, signer_lines
from broker.trust.authority import CertificateAuthority
from broker.trust.csr import CsrKey, parse_csr
from broker.trust.signers_file import SignersFile
from broker.wire.caller import Caller
from broker.wire.names import NAMESPACE_ADMIN, Digest, Instance, Instant
from tests.fuzz.place import folder, put
from tests.fuzz.target import Target
from tests.vectors.csrs import pem
from tests.wire import vectors

_KEY = ec.derive_private_key(7, ec.SECP256R1())
_DEMO = Instance("demo")
_NOW = Instant(1_767_225_600_000_000)
_BLOB = base64.b64encode(b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + bytes(range(32)))
_SIGNERS = (
    b"operator@demo ssh-ed25519 %b one\n# a comment\n\n" % _BLOB,
    b'operator@demo namespaces="lever-*,!x",valid-after="20250101",valid-before="20270101000000Z" ssh-ed25519 %b'
    b"\n" % _BLOB,
    b'"operator@demo,*@x" cert-authority,valid-before="202701010000" ssh-ed25519 %b two words\r\n' % _BLOB,
)  # fmt: skip
_STDERR = (
    b"/dev/fd/7:3: key is not permitted for use in signature namespace\n",
    b'Signature verification failed: incorrect signature\nkey has expired: verify time 20260101 > "valid-before"\n',
)


def _der(pem_bytes: bytes) -> bytes:
    return base64.b64decode(b"".join(pem_bytes.split(b"\n")[1:-2]))


def _certificate(name: str, purpose: x509.ObjectIdentifier, identity: str) -> bytes:
    """A certificate as the authority would issue it, the same bytes each time."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = (
        x509.CertificateBuilder(subject, subject, _KEY.public_key(), 1, start, start.replace(year=2036))
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=False)
    )
    return builder.sign(_KEY, hashes.SHA256(), ecdsa_deterministic=True).public_bytes(serialization.Encoding.DER)


def _authority() -> bytes:
    """An authority's file, the same bytes each time."""
    subject, start = authority._authority_name(_DEMO), datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(subject, subject, _KEY.public_key(), 1, start, start.replace(year=2036))
    certificate = builder.sign(_KEY, hashes.SHA256(), ecdsa_deterministic=True)
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return _KEY.private_bytes(*plain) + certificate.public_bytes(serialization.Encoding.PEM)


def _loaded(raw: bytes) -> CertificateAuthority:
    """The authority in a file of these bytes."""
    made = folder("authority")
    put(made / authority_file.NAME, raw)
    return CertificateAuthority.load(made, _DEMO)


def _signers(raw: bytes) -> object:
    """All that is made of the file without ssh-keygen."""
    file = SignersFile(raw, Digest(sha256(raw).digest()))
    namespaces = (NAMESPACE_ADMIN,)
    found = diagnosis.examine(file, "operator@demo", namespaces, _NOW, "add")
    return file.era(_NOW), file.fingerprints, [finding.text for finding in found]


def _explained(raw: bytes) -> object:
    said = diagnosis.explain(SignersFile(_SIGNERS[0], Digest(bytes(32))), "operator@demo", Digest(bytes(32)), raw)
    if not said.isprintable():
        raise AssertionError(f"foreign bytes in an explanation: {said!r}")
    return said


_OWN = _loaded(_authority())
_REQUESTS = vectors.taken("csrs")
_IDENTITY = "lever://demo/agent/worker-a/generation/3"
_CERTIFICATE = _certificate("worker-a", ExtendedKeyUsageOID.CLIENT_AUTH, _IDENTITY)

TARGETS = (
    Target(
        "certificate request", ("broker.trust.csr.parse_csr",), parse_csr, _REQUESTS, CsrKey, (Untrusted,)
    ),
    Target(
        "certificate request in a sound armor",
        ("broker.trust.agents.AgentTrust.read_request",),
        lambda der: parse_csr(pem(der)),
        tuple(map(_der, _REQUESTS[:3])),
        CsrKey,
        (Untrusted,),
    ),
    Target(
        "client certificate",
        ("broker.trust.agents.caller_of",),
        lambda der: agents.caller_of.__wrapped__(der, _DEMO),
        (_CERTIFICATE,),
        Caller,
        (Untrusted,),
    ),
    Target(
        "the authority's file",
        ("broker.trust.authority_file.read", "broker.trust.authority.CertificateAuthority.load"),
        _loaded,
        (_authority(),),
        CertificateAuthority,
        (Fatal,),
    ),
    Target(
        "a signature of the broker",
        ("broker.trust.authority.CertificateAuthority.verify",),
        lambda raw: _OWN.verify(b"raw", raw),
        (_KEY.sign(b"raw", ec.ECDSA(hashes.SHA256(), deterministic_signing=True)),),
        refuses=(Untrusted,),
    ),
    Target(
        "allowed_signers",
        (
            "broker.trust.signer_lines.read_lines",
            "broker.trust.signers_file.SignersReader.read",
            "broker.trust.signers_file.read_signers",
        ),
        _signers,
        _SIGNERS,
        tuple,
        (),
    ),
    Target(
        "dates in allowed_signers",
        ("broker.trust.signer_lines.date_s",),
        lambda raw: signer_lines.date_s(raw.decode("utf-8", "surrogateescape")),
        (b"20260101", b"20260101120000Z", b"202601011200UTC"),
        int | None,
        (),
    ),
    Target("the words of ssh-keygen", ("broker.trust.diagnosis.explain",), _explained, _STDERR, str, ()),
)  # fmt: skip
