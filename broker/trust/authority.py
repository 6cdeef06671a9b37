"""The instance's own certificate authority: who may be an agent, who the broker. docs/formats/certificate.md."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from broker.errors import Damaged, Fatal, Untrusted
from broker.trust import authority_file
from broker.trust.csr import UNREADABLE, AgentKey
from broker.wire.escape import escaped
from broker.wire.names import Cn, Digest, Generation, Instance, Instant
from broker.wire.times import SECOND

LIFETIME_S = 24 * 3600
_AUTHORITY_LIFETIME_S = 3650 * 24 * 3600
_CLOCK_LEEWAY_S = 120
_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate just made. cert_digest: SHA-256 of its DER; it is expired from not_after_at on."""

    pem: str
    cert_digest: Digest
    not_after_at: Instant


class CertificateAuthority:
    """Signs the certificates of one instance. Made by `create` or `load`."""

    def __init__(self, instance: Instance, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.instance = instance
        self.pem = _pem(certificate)
        der = certificate.public_bytes(serialization.Encoding.DER)
        self.digest = Digest(hashlib.sha256(der).digest())
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, folder: Path, instance: Instance, now: Instant) -> CertificateAuthority:
        """A new authority, in a folder that has none. Raises Fatal."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _self_signed(instance, key, now)
        key_pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        authority_file.write_new(folder, key_pem + _pem(certificate).encode("ascii"))
        return cls(instance, key, certificate)

    @classmethod
    def load(cls, folder: Path, instance: Instance) -> CertificateAuthority:
        """The authority of this instance. Raises Fatal when it is missing, readable by others, damaged or another's."""
        pem = authority_file.read(folder)
        path = folder / authority_file.NAME
        try:
            key = serialization.load_pem_private_key(pem, password=None)
            certificate = x509.load_pem_x509_certificate(pem)
            public_key, subject = certificate.public_key(), certificate.subject
        except UNREADABLE as error:
            raise Damaged(f"{path} does not hold a private key and a certificate") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != public_key:
            raise Damaged(f"{path}: the private key does not belong to the certificate")
        if subject != _authority_name(instance):
            found = escaped(subject.rfc4514_string())
            raise Fatal(f'{path} is the authority of "{found}", expected that of instance {instance}')
        return cls(instance, key, certificate)

    def issue(self, cn: Cn, generation: Generation, public_key: AgentKey, now: Instant, serial: int) -> Issued:
        """An agent's certificate for 24 hours. serial: a fresh random number, 1 to 2^159 - 1."""
        identity = f"lever://{self.instance}/agent/{cn}/generation/{generation}"
        builder = self._leaf(cn, public_key, now, serial, ExtendedKeyUsageOID.CLIENT_AUTH)
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)])
        return self._sign(builder.add_extension(names, critical=False))

    def issue_server(
        self, names: Sequence[str], public_key: ec.EllipticCurvePublicKey, now: Instant, serial: int
    ) -> Issued:
        """The broker's own certificate for 24 hours. names: DNS names and IP addresses, at least one."""
        builder = self._leaf("lever broker", public_key, now, serial, ExtendedKeyUsageOID.SERVER_AUTH)
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return self._sign(builder.add_extension(alternatives, critical=False))

    def sign(self, raw: bytes) -> bytes:
        """The broker's own signature over these bytes (ECDSA with SHA-256)."""
        return self._key.sign(raw, ec.ECDSA(hashes.SHA256()))

    def verify(self, raw: bytes, signature: bytes) -> None:
        """Raises Untrusted unless `sign` made this signature over these bytes."""
        try:
            self._key.public_key().verify(signature, raw, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature as error:
            raise Untrusted("not signed by this broker's own key") from error

    def _leaf(
        self, cn: str, public_key: AgentKey, now: Instant, serial: int, purpose: ObjectIdentifier
    ) -> x509.CertificateBuilder:
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        not_after = min(_when(now, LIFETIME_S), self._certificate.not_valid_after_utc)
        return (
            _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)]), public_key, serial)
            .issuer_name(self._certificate.subject)
            .not_valid_before(_when(now, -_CLOCK_LEEWAY_S))
            .not_valid_after(not_after)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(authority_key, critical=False)
        )

    def _sign(self, builder: x509.CertificateBuilder) -> Issued:
        certificate = builder.sign(self._key, hashes.SHA256())
        der = certificate.public_bytes(serialization.Encoding.DER)
        not_after_at = Instant(int(certificate.not_valid_after_utc.timestamp()) * SECOND)
        return Issued(_pem(certificate), Digest(hashlib.sha256(der).digest()), not_after_at)


def _self_signed(instance: Instance, key: ec.EllipticCurvePrivateKey, now: Instant) -> x509.Certificate:
    own_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = _authority_name(instance)
    return (
        _builder(name, key.public_key(), x509.random_serial_number())
        .issuer_name(name)
        .not_valid_before(_when(now, -_CLOCK_LEEWAY_S))
        .not_valid_after(_when(now, _AUTHORITY_LIFETIME_S))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage("key_cert_sign"), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_key), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(subject: x509.Name, public_key: AgentKey, serial: int) -> x509.CertificateBuilder:
    own_key = x509.SubjectKeyIdentifier.from_public_key(public_key)
    builder = x509.CertificateBuilder().subject_name(subject).public_key(public_key).serial_number(serial)
    return builder.add_extension(own_key, critical=False)


def _authority_name(instance: Instance) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"lever {instance} authority")])


def _key_usage(usage: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name == usage for name in _KEY_USAGES})


def _when(now: Instant, offset_s: int) -> datetime:
    return datetime.fromtimestamp(now // SECOND, UTC) + timedelta(seconds=offset_s)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
