"""A certificate request: the key an agent wants certified. Its name and extensions are the agent's wish, no more."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from broker.errors import Malformed, Untrusted
from broker.wire import names
from broker.wire.names import Cn, Digest

AgentKey = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

MAX_BYTES = 8192
_PEM = re.compile(
    rb"-----BEGIN CERTIFICATE REQUEST-----\r?\n"
    rb"((?:[A-Za-z0-9+/=]{1,76}\r?\n)+)"
    rb"-----END CERTIFICATE REQUEST-----(?:\r?\n)?"
)
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What the X.509 parser raises for bytes that are not what they should be."""


@dataclass(frozen=True, slots=True)
class CsrKey:
    """The key of a request whose holder proved to have it.

    key_digest: SHA-256 of the public key (SubjectPublicKeyInfo, DER); cn: the request's own name, None when it has not
    exactly one that is a CN.
    """

    public_key: AgentKey
    key_digest: Digest
    cn: Cn | None


def parse_csr(pem: bytes) -> CsrKey:
    """The key in one PEM block `CERTIFICATE REQUEST` and nothing else: P-256, P-384 or Ed25519, signed by itself.

    Raises Untrusted, whatever the bytes.
    """
    der = _der(pem)
    try:
        request = x509.load_der_x509_csr(der)
        key = request.public_key()
        if not isinstance(key, AgentKey):
            raise Untrusted("the request's key is of another kind than P-256, P-384 and Ed25519")
        if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name not in ("secp256r1", "secp384r1"):
            raise Untrusted(f"the request's key is on {key.curve.name}, expected P-256 or P-384")
        if not request.is_signature_valid:
            raise Untrusted("the request is not signed by its own key")
        return CsrKey(key, key_digest(key), _cn(request.subject))
    except UNREADABLE as error:
        raise Untrusted("not a certificate request") from error


def key_digest(key: AgentKey) -> Digest:
    """SHA-256 of a public key's SubjectPublicKeyInfo (DER)."""
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Digest(hashlib.sha256(spki).digest())


def common_name(subject: x509.Name) -> Cn:
    """The one CN of a subject. Raises Malformed."""
    found = subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    if len(found) != 1:
        raise Malformed("CN", f"expected one, found {len(found)}")
    return names.cn(found[0].value, "CN")


def _cn(subject: x509.Name) -> Cn | None:
    try:
        return common_name(subject)
    except Malformed:
        return None


def _der(pem: bytes) -> bytes:
    if len(pem) > MAX_BYTES:
        raise Untrusted(f"the request is longer than {MAX_BYTES} bytes")
    found = _PEM.fullmatch(pem)
    if not found:
        raise Untrusted("expected one PEM block CERTIFICATE REQUEST and nothing else")
    text = b"".join(found[1].split())
    try:
        der = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Untrusted("the request is not base64 between BEGIN and END") from error
    if base64.b64encode(der) != text:
        raise Untrusted("the request is not the canonical base64 of its bytes")
    return der
