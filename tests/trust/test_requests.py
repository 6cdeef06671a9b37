"""Certificate requests as an attacker writes them: a wrong one is Untrusted and nothing else."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from broker.errors import Untrusted
from broker.trust.csr import MAX_BYTES, parse_csr

KEY = ec.generate_private_key(ec.SECP256R1())

pytestmark = pytest.mark.promise("P17")


def request(*names: str, curve: ec.EllipticCurvePrivateKey = KEY) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(curve, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)


def pem(der: bytes, label: str = "CERTIFICATE REQUEST", end: str = "\n") -> bytes:
    text = base64.b64encode(der).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return (end.join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"]) + end).encode()


@pytest.mark.parametrize(
    ("names", "cn"),
    [
        (("worker-a",), "worker-a"),
        ((), None),
        (("worker-a", "worker-b"), None),
        (("Worker A",), None),
        (("worker-a\n",), None),
    ],
)
def test_the_name_is_the_one_cn_or_none(names: tuple[str, ...], cn: str | None) -> None:
    assert parse_csr(pem(request(*names))).cn == cn


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_line_ends_are_taken(end: str) -> None:
    assert parse_csr(pem(request("worker-a"), end=end)).cn == "worker-a"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda der: pem(der) + pem(der),
        lambda der: pem(der) + b"\n",
        lambda der: pem(der) + b"\x00",
        lambda der: b"Subject: worker-a\n" + pem(der),
        lambda der: pem(der + b"\x00"),
        lambda der: pem(der[:-1]),
        lambda der: pem(der, "CERTIFICATE"),
        lambda der: pem(der, "NEW CERTIFICATE REQUEST"),
        lambda der: pem(der, "CERTIFICATE REQUEST ")[:-1],
        lambda der: pem(der).replace(b"\n", b"\n\n"),
        lambda der: pem(der).replace(b"\n-----END", b"=\n-----END"),
        lambda der: pem(b"\x30\x80" + der),
        lambda der: der,
        lambda der: pem(b"\x00" * MAX_BYTES),
        lambda _der: pem(request("a", curve=ec.generate_private_key(ec.SECP256K1()))),
        lambda _der: pem(request("a", curve=ec.generate_private_key(ec.SECP521R1()))),
        lambda _der: pem(request("a", curve=ec.generate_private_key(ec.SECP224R1()))),
    ],
)
def test_all_but_one_clean_block_with_a_certified_kind_of_key_is_untrusted(spoil: object) -> None:
    assert callable(spoil)
    with pytest.raises(Untrusted):
        parse_csr(spoil(request("worker-a")))


def test_a_request_that_another_key_signed_is_untrusted() -> None:
    der = request("worker-a")
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    mine = KEY.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    theirs = other.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    assert der.count(mine) == 1
    with pytest.raises(Untrusted, match="not signed by its own key"):
        parse_csr(pem(der.replace(mine, theirs)))


def test_whatever_byte_is_changed_it_is_untrusted_or_still_the_same_request() -> None:
    der = request("worker-a")
    whole = parse_csr(pem(der))
    taken = 0
    for at in range(len(der)):
        for change in (0x01, 0xFF):
            try:
                found = parse_csr(pem(der[:at] + bytes([der[at] ^ change]) + der[at + 1 :]))
            except Untrusted:
                continue
            # The count of unused bits behind the signature is signed by nobody.
            assert (found.key_digest, found.cn) == (whole.key_digest, whole.cn)
            taken += 1
    assert taken <= 1
