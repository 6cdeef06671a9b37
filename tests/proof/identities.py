"""Agents' identities in a folder that several client processes share: one file each, replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class Identity:
    """One certificate and where its file is. key: what tells its key from others."""

    cn: str
    generation: int
    key: str
    pem: Path


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def key_name(key: Key) -> str:
    spki = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return sha256(spki).hexdigest()[:16]


def request(cn: str, key: Key) -> str:
    """A certificate request, in PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def read_certificate(pem: str) -> tuple[int, str]:
    """The generation that a certificate names, and the SHA-256 of its DER in hex."""
    certificate = x509.load_pem_x509_certificate(pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    return int(uri.rsplit("/", 1)[1]), certificate.fingerprint(hashes.SHA256()).hex()


def publish(folder: Path, cn: str, key: Key, certificate: str) -> Identity:
    """From now on every client finds this identity for the name."""
    generation, digest = read_certificate(certificate)
    identity = Identity(cn, generation, key_name(key), folder / f"{cn}.{generation}.{digest[:8]}.pem")
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    identity.pem.write_text(private.decode() + certificate)
    new = folder / f"{cn}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(f"{identity.pem.name}.{identity.key}")
    new.rename(folder / cn)
    return identity


def newest(folder: Path, cn: str) -> Identity | None:
    """What was published last for this name."""
    try:
        target = (folder / cn).readlink().name
    except OSError:
        return None
    pem, key = target.rsplit(".", 1)
    return Identity(cn, int(pem.split(".")[1]), key, folder / pem)
