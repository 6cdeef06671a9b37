"""The authority's file: made once, whole, kept private, and believed only when it fits together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from broker.errors import Fatal
from broker.trust.authority import CertificateAuthority
from broker.trust.authority_file import NAME
from broker.wire.names import Cn, Generation, Instance, Instant
from tests.rig import SECOND, now

DEMO = Instance("demo")


def key_of_another(file: Path) -> None:
    other = CertificateAuthority.create(file.parent / "other", DEMO, now())
    mine = file.read_bytes().partition(b"-----BEGIN CERTIFICATE")[0]
    file.write_bytes(mine + other.pem.encode())


def plain_key(file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def link_elsewhere(file: Path) -> None:
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


def folder_instead(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (key_of_another, "does not belong"),
        (plain_key, "does not hold"),
        (lambda file: file.write_bytes(b""), "does not hold"),
        (lambda file: file.write_bytes(file.read_bytes()[:300]), "does not hold"),
        (Path.unlink, "can't be read"),
        (link_elsewhere, "can't be read"),
        (folder_instead, "not a regular file"),
        (lambda file: file.chmod(0o640), "mode 0640"),
        (lambda file: file.chmod(0o604), "mode 0604"),
    ],
    ids=["another's key", "no certificate", "empty", "cut", "missing", "link", "folder", "group reads", "all read"],
)
def test_an_authority_that_is_not_whole_or_not_private_is_not_loaded(
    tmp_path: Path, spoil: Callable[[Path], object], word: str
) -> None:
    made = CertificateAuthority.create(tmp_path, DEMO, now())
    assert CertificateAuthority.load(tmp_path, DEMO).digest == made.digest
    spoil(tmp_path / NAME)
    with pytest.raises(Fatal, match=word):
        CertificateAuthority.load(tmp_path, DEMO)


def test_a_second_authority_leaves_the_first_as_it_is(tmp_path: Path) -> None:
    CertificateAuthority.create(tmp_path, DEMO, now())
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(Fatal, match="already exists"):
        CertificateAuthority.create(tmp_path, DEMO, now())
    assert (tmp_path / NAME).read_bytes() == before


def test_what_a_crash_left_half_written_is_no_authority_and_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / f".{NAME}.new").write_bytes(b"half a key")
    with pytest.raises(Fatal):
        CertificateAuthority.load(tmp_path, DEMO)
    CertificateAuthority.create(tmp_path, DEMO, now())
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_the_authority_can_sign_agents_and_no_further_authority(tmp_path: Path) -> None:
    extensions = x509.load_pem_x509_certificate(
        CertificateAuthority.create(tmp_path, DEMO, now()).pem.encode()
    ).extensions
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature


def test_a_leaf_says_what_it_is_for_and_outlives_nothing(tmp_path: Path) -> None:
    made_at = Instant(now() - 3650 * 24 * 3600 * SECOND + 3600 * SECOND)
    authority = CertificateAuthority.create(tmp_path, DEMO, made_at)
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    agent = authority.issue(Cn("worker-a"), Generation(3), key, now(), 12345)
    server = authority.issue_server(["broker.example", "127.0.0.1", "::1"], key, now(), 12346)
    end = x509.load_pem_x509_certificate(authority.pem.encode()).not_valid_after_utc
    for issued, purpose in ((agent, ExtendedKeyUsageOID.CLIENT_AUTH), (server, ExtendedKeyUsageOID.SERVER_AUTH)):
        leaf = x509.load_pem_x509_certificate(issued.pem.encode())
        assert leaf.not_valid_after_utc == end, "an hour before its own end the authority signs for an hour"
        assert list(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
        assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    extensions = x509.load_pem_x509_certificate(server.pem.encode()).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["broker.example", "127.0.0.1", "::1"]
