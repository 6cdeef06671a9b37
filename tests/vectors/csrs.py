"""Certificate requests, made of fixed keys and fixed times: the same bytes each time."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from tests.vectors.case import Case, File, refused

_P256 = ec.derive_private_key(7, ec.SECP256R1())
_OTHER = ec.derive_private_key(11, ec.SECP256R1())
_ED25519 = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
LABEL = "CERTIFICATE REQUEST"
MAX_BYTES = 8192


def _subject(names: Sequence[str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])


def _digest(key: Any) -> hashes.HashAlgorithm | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def request(*names: str, key: Any = _P256) -> bytes:
    """A request for these names, in DER, signed by its own key."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(names))
    same = None if isinstance(key, ed25519.Ed25519PrivateKey) else True
    return builder.sign(key, _digest(key), ecdsa_deterministic=same).public_bytes(Encoding.DER)


def pem(der: bytes, label: str = LABEL, end: str = "\n") -> bytes:
    """The armored text of some DER."""
    text = base64.b64encode(der).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return (end.join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"]) + end).encode()


def authority_pem() -> str:
    """A self-signed certificate that never changes."""
    name, start = _subject(["lever demo CA"]), datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, _P256.public_key(), 1, start, start.replace(year=2036))
    made = builder.sign(_P256, hashes.SHA256(), ecdsa_deterministic=True)
    return made.public_bytes(Encoding.PEM).decode()


def _of_another_key() -> bytes:
    """The request of one key with the public key of another in it."""
    points = [key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint) for key in (_P256, _OTHER)]
    return request("worker-a").replace(*points)


_DER = request("worker-a")
_TAKEN = {
    "P-256": (pem(_DER), "worker-a"),
    "P-384": (pem(request("worker-a", key=ec.derive_private_key(7, ec.SECP384R1()))), "worker-a"),
    "Ed25519": (pem(request("worker-a", key=_ED25519)), "worker-a"),
    "lines that end as on Windows": (pem(_DER, end="\r\n"), "worker-a"),
    "no line break at the end": (pem(_DER)[:-1], "worker-a"),
    "no name": (pem(request()), ""),
    "two names": (pem(request("worker-a", "worker-b")), ""),
    "a name with other letters": (pem(request("Worker A")), ""),
}
_REFUSED = {
    "two blocks": pem(_DER) * 2,
    "an empty line behind it": pem(_DER) + b"\n",
    "words before it": b"Subject: worker-a\n" + pem(_DER),
    "an empty line in it": pem(_DER).replace(b"\n", b"\n\n"),
    "bytes behind the request": pem(_DER + b"\x00"),
    "a request that is cut short": pem(_DER[:-1]),
    "another label": pem(_DER, "CERTIFICATE"),
    "an older label": pem(_DER, "NEW CERTIFICATE REQUEST"),
    "DER without its armor": _DER,
    "base64 with loose bits": pem(_DER).replace(b"\n-----END", b"=\n-----END"),
    "longer than 8192 bytes": pem(bytes(MAX_BYTES)),
    "signed by another key": pem(_of_another_key()),
    "P-521": pem(request("worker-a", key=ec.derive_private_key(7, ec.SECP521R1()))),
    "P-224": pem(request("worker-a", key=ec.derive_private_key(7, ec.SECP224R1()))),
    "secp256k1": pem(request("worker-a", key=ec.derive_private_key(7, ec.SECP256K1()))),
    "nothing": b"",
}

FILE = File(
    "csrs",
    "Certificate requests as an agent sends them, in PEM. `says`: its name, none where it has not exactly one that "
    "a broker would certify.",
    "docs/formats/certificate.md",
    (
        *(Case(name, raw, says=cn) for name, (raw, cn) in _TAKEN.items()),
        *(refused(name, raw, "", "Untrusted") for name, raw in _REFUSED.items()),
    ),
)
