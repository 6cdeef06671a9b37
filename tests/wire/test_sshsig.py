"""The armored signature: real ones are read, and whatever ssh-keygen tolerates around or inside them is refused."""

from __future__ import annotations

import base64
import struct
import subprocess
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given

from broker.wire import sshsig
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE
from broker.wire.sshsig import SshSignature
from tests.fakes.soft_key import Kind, SoftKey, armor, ssh_string
from tests.wire import samples, ssh
from tests.wire.samples import FUZZ, SIGNATURES

MESSAGE = b'{"v":1}'
SK = "sk-ssh-ed25519@openssh.com"
BEGIN, END = b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----"


@pytest.mark.parametrize(
    ("options", "key_type", "signature_type"),
    [
        (["-t", "ed25519"], "ssh-ed25519", "ssh-ed25519"),
        (["-t", "ecdsa", "-b", "256"], "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256"),
        (["-t", "ecdsa", "-b", "384"], "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384"),
        (["-t", "rsa", "-b", "2048"], "ssh-rsa", "rsa-sha2-512"),
    ],
    ids=lambda part: part[1] if isinstance(part, list) else "",
)
def test_reads_what_ssh_keygen_signs(tmp_path: Path, options: list[str], key_type: str, signature_type: str) -> None:
    key = ssh.make_key(tmp_path, *options)
    blob = base64.b64decode(key.with_suffix(".pub").read_text().split()[1])
    for namespace, hash_name in product((NAMESPACE_DIRECTIVE, NAMESPACE_ADMIN), ("sha256", "sha512")):
        armored = ssh.sign(key, MESSAGE, "-O", f"hashalg={hash_name}", namespace=namespace)
        assert sshsig.parse(armored) == SshSignature(blob, key_type, namespace, hash_name, signature_type, None)


def test_reads_the_signature_of_a_certified_key(tmp_path: Path) -> None:
    authority, user = tmp_path / "ca", tmp_path / "user"
    authority.mkdir()
    user.mkdir()
    ca, key = ssh.make_key(authority, "-t", "ed25519"), ssh.make_key(user, "-t", "ed25519")
    argv = ["ssh-keygen", "-q", "-s", str(ca), "-I", "id", "-n", ssh.PRINCIPAL, str(key.with_suffix(".pub"))]
    subprocess.run(argv, check=True)
    read = sshsig.parse(ssh.sign(user / "key-cert.pub", MESSAGE))
    assert (read.key_type, read.signature_type) == ("ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519")


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("flags", [0x00, 0x01, 0x05, 0xFF])
def test_reads_the_flags_of_a_security_key(kind: Kind, flags: int) -> None:
    key = SoftKey(kind)
    read = sshsig.parse(key.sign(NAMESPACE_DIRECTIVE, MESSAGE, flags=flags))
    assert (read.flags, read.public_key) == (flags, key.public_blob)
    assert read.signature_type.startswith({"webauthn": "webauthn-sk-"}.get(kind, "sk-"))


def blob_of(
    *,
    magic: bytes = b"SSHSIG",
    version: int = 1,
    key: bytes = ssh_string(b"ssh-ed25519") + ssh_string(bytes(32)),
    namespace: bytes = b"ns",
    reserved: bytes = b"",
    hash_name: bytes = b"sha512",
    inner: bytes = ssh_string(b"ssh-ed25519") + ssh_string(bytes(64)),
    after: bytes = b"",
) -> bytes:
    fields = b"".join(map(ssh_string, (key, namespace, reserved, hash_name, inner)))
    return magic + struct.pack(">I", version) + fields + after


def test_the_blob_that_the_refusals_start_from_is_read() -> None:
    assert sshsig.parse(armor(blob_of())).key_type == "ssh-ed25519"


SK_KEY = ssh_string(SK.encode()) + ssh_string(bytes(32)) + ssh_string(b"ssh:")
SK_INNER = ssh_string(SK.encode()) + ssh_string(bytes(64))
WEBAUTHN_INNER = ssh_string(b"webauthn-sk-ecdsa-sha2-nistp256@openssh.com") + ssh_string(bytes(64))


@pytest.mark.parametrize(
    ("blob", "where"),
    [
        (b"", "signature"),
        (blob_of(magic=b"SSHSIH"), "signature"),
        (blob_of(version=2), "signature"),
        (blob_of(after=b"\x00"), "signature"),
        (blob_of()[:-1], "signature"),
        (blob_of()[:9], "signature"),
        (b"SSHSIG\x00\x00\x00\x01\xff\xff\xff\xff", "signature"),
        (blob_of(reserved=b"x"), "signature.reserved"),
        (blob_of(namespace=b""), "signature.namespace"),
        (blob_of(namespace=b"n s"), "signature.namespace"),
        (blob_of(namespace=b"ns\x00"), "signature.namespace"),
        (blob_of(namespace=b"ns\n"), "signature.namespace"),
        (blob_of(namespace="n\u00e9".encode()), "signature.namespace"),
        (blob_of(namespace=b"n" * 129), "signature.namespace"),
        (blob_of(hash_name=b"sha1"), "signature.hash"),
        (blob_of(hash_name=b"SHA512"), "signature.hash"),
        (blob_of(hash_name=b""), "signature.hash"),
        (blob_of(key=b""), "signature.public_key"),
        (blob_of(key=ssh_string(b"")), "signature.public_key.type"),
        (blob_of(inner=b""), "signature.signature"),
        (blob_of(inner=ssh_string(b"ssh-ed25519")), "signature.signature"),
        (blob_of(inner=ssh_string(b"ssh-ed25519") + ssh_string(b"")), "signature.signature"),
        (blob_of(inner=ssh_string(b"ssh-ed25519") + ssh_string(bytes(64)) + b"\x01"), "signature.signature"),
        (blob_of(inner=ssh_string(b"") + ssh_string(bytes(64))), "signature.signature.type"),
        # A security key whose signature shows no flags, and flags that no security key made.
        (blob_of(key=SK_KEY), "signature.type"),
        (blob_of(inner=SK_INNER + bytes(5)), "signature.type"),
        (blob_of(key=SK_KEY, inner=SK_INNER), "signature.signature"),
        (blob_of(key=SK_KEY, inner=SK_INNER + bytes(4)), "signature.signature"),
        (blob_of(key=SK_KEY, inner=SK_INNER + bytes(6)), "signature.signature"),
        (blob_of(key=SK_KEY, inner=WEBAUTHN_INNER + bytes(5)), "signature.signature"),
    ],
)
def test_refuses_a_blob(blob: bytes, where: str) -> None:
    assert samples.refusal(sshsig.parse, armor(blob)).where == where


ARMORED = armor(blob_of())
BODY = ARMORED.split(b"\n")[1]


@pytest.mark.parametrize(
    "armored",
    [
        b"",
        ARMORED + b"x",
        ARMORED + ARMORED,
        ARMORED + b"\n",
        b"\n" + ARMORED,
        b"\xef\xbb\xbf" + ARMORED,
        ARMORED.replace(b"\n", b"\r\n"),
        ARMORED.replace(BODY, BODY + b"\n"),
        ARMORED.replace(BODY, BODY + b" "),
        ARMORED.replace(BODY, BODY[:8] + b"\t" + BODY[8:]),
        ARMORED.replace(BODY, BODY[:-1] + b"."),
        ARMORED.replace(BODY, BODY[:-1]),
        ARMORED.replace(BODY, BODY[:-1] + b"="),
        ARMORED.replace(b"SIGNATURE", b"SIGNATURES"),
        ARMORED.replace(END, BEGIN),
        b"\n".join((BEGIN, END, b"")),
        b"\n".join((BEGIN, base64.b64encode(blob_of()), END, b"")),
        armor(blob_of(inner=ssh_string(b"ssh-ed25519") + ssh_string(bytes(16384)))),
    ],
    ids=range(18),
)
def test_refuses_an_armor(armored: bytes) -> None:
    assert samples.refusal(sshsig.parse, armored).where == "signature"


def test_refuses_base64_with_loose_bits_at_its_end() -> None:
    armored = armor(blob_of(namespace=b"nsx"))
    assert b"=\n" in armored
    text = b"".join(armored.split(b"\n")[1:-2])
    twin = base64.b64encode(base64.b64decode(text))
    at = len(text.rstrip(b"=")) - 1
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    loose = text[:at] + bytes([alphabet[alphabet.index(text[at]) + 1]]) + text[at + 1 :]
    assert twin == text
    assert base64.b64decode(loose) == base64.b64decode(text)
    lines = [loose[start : start + 70] for start in range(0, len(loose), 70)]
    error = samples.refusal(sshsig.parse, b"\n".join((BEGIN, *lines, END, b"")))
    assert error.why == "not the canonical base64 of its bytes"


def test_takes_an_armor_without_its_last_line_break() -> None:
    assert sshsig.parse(ARMORED.rstrip(b"\n")) == sshsig.parse(ARMORED)


def test_ssh_keygen_itself_takes_bytes_behind_the_armor(tmp_path: Path) -> None:
    """The reason to be stricter: two different signatures would stand for one."""
    key = SoftKey("sk-ed25519")
    armored = key.sign(ssh.NAMESPACE, MESSAGE) + b"words of a stranger\n"
    assert ssh.verifies(tmp_path, key.public_line, armored, MESSAGE)
    samples.refusal(sshsig.parse, armored)


@FUZZ
@given(samples.hostile(SIGNATURES))
def test_malformed_or_a_signature(armored: bytes) -> None:
    read = samples.malformed_or(sshsig.parse, armored)
    assert read is None or isinstance(read, SshSignature)


@FUZZ
@given(samples.mutated([base64.b64decode(b"".join(each.split(b"\n")[1:-2])) for each in SIGNATURES]))
def test_malformed_or_a_signature_inside_a_sound_armor(blob: bytes) -> None:
    read = samples.malformed_or(sshsig.parse, armor(blob))
    if isinstance(read, SshSignature):
        assert read.key_type.startswith("sk-") == (read.flags is not None)
