"""Keys and certificates of an agent: made, written as PEM, and checked against each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from broker.errors import Malformed
from broker.wire import names
from broker.wire.names import Cn, Digest, Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAN = re.compile(r"lever://([a-z0-9-]{1,63})/agent/([a-z0-9-]{1,63})/generation/([1-9][0-9]{0,15})")


@dataclass(frozen=True, slots=True)
class Holder:
    """What a certificate says about its holder. instance, generation: None in one that carries no generation."""

    cn: Cn
    instance: str | None
    generation: int | None
    not_before_at: Instant
    not_after_at: Instant
    cert_digest: Digest


def new_key() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as unencrypted PKCS 8: its file's mode is what protects it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(pem: bytes, where: str) -> ec.EllipticCurvePrivateKey:
    """A P-256 key from its PEM. Raises Malformed."""
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Malformed(where, "no private key that can be read") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise Malformed(where, "expected a P-256 key")
    return key


def csr_pem(key: ec.EllipticCurvePrivateKey, cn: Cn) -> str:
    """A certificate request of this name for this key."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(Encoding.PEM).decode("ascii")


def read_certificates(pem: bytes, where: str) -> tuple[x509.Certificate, ...]:
    """The certificates of a PEM text, at least one. Raises Malformed."""
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise Malformed(where, "no certificate that can be read") from error


def certificates_pem(certificates: Sequence[x509.Certificate]) -> bytes:
    """Certificates as PEM and nothing around them."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def holder(leaf: x509.Certificate, where: str = "certificate") -> Holder:
    """Who a certificate is for and until when. Raises Malformed."""
    try:
        found = [a.value for a in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        uris = _uris(leaf)
    except ValueError as error:
        raise Malformed(where, "a name that can't be read") from error
    if len(found) != 1:
        raise Malformed(where, f"expected one common name, found {len(found)}")
    cn = names.cn(found[0], f"{where}.cn")
    matches = [match for uri in uris if (match := _SAN.fullmatch(uri))]
    if len(matches) > 1 or any(match[2] != cn for match in matches):
        raise Malformed(where, "its common name and its lever:// name disagree")
    instance, generation = (matches[0][1], int(matches[0][3])) if matches else (None, None)
    return Holder(
        cn,
        instance,
        generation,
        _instant(leaf.not_valid_before_utc),
        _instant(leaf.not_valid_after_utc),
        Digest(leaf.fingerprint(hashes.SHA256())),
    )


def check_pair(leaf: x509.Certificate, key: ec.EllipticCurvePrivateKey, where: str = "certificate") -> None:
    """Is this certificate for this key? Raises Malformed."""
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    try:
        same = leaf.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)
    except (ValueError, UnsupportedAlgorithm):
        same = False
    if not same:
        raise Malformed(where, "is for another key")


def check_issuer(leaf: x509.Certificate, ca: Sequence[x509.Certificate], where: str = "certificate") -> None:
    """Is this a leaf that one of these authorities signed? Raises Malformed."""
    try:
        basic = leaf.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        basic = None
    except ValueError as error:
        raise Malformed(where, "an extension that can't be read") from error
    if basic is not None and basic.ca:
        raise Malformed(where, "is an authority's own, not an agent's")
    if not any(_signed_by(leaf, authority) for authority in ca):
        raise Malformed(where, "was not signed by the instance's own CA")


def text_digest(text: str) -> str:
    """SHA-256 of a text, in hex."""
    return sha256(text.encode()).hexdigest()


def _signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _uris(leaf: x509.Certificate) -> list[str]:
    try:
        other_names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return other_names.get_values_for_type(x509.UniformResourceIdentifier)


def _instant(moment: datetime) -> Instant:
    return Instant((moment - _EPOCH) // timedelta(microseconds=1))
