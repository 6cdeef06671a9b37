"""The armored signature: real ones are read, and whatever ssh-keygen tolerates around or inside them is refused."""

from __future__ import annotations

import base64
import subprocess
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given

from broker.wire import sshsig
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE
from broker.wire.sshsig import SshSignature
from tests.fakes.soft_key import Kind, SoftKey, armor
from tests.vectors.sshsigs import blob
from tests.wire import samples, ssh
from tests.wire.samples import FUZZ, SIGNATURES

MESSAGE = b'{"v":1}'
BEGIN, END = b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----"
ARMORED = armor(blob())


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
    public = base64.b64decode(key.with_suffix(".pub").read_text().split()[1])
    for namespace, hash_name in product((NAMESPACE_DIRECTIVE, NAMESPACE_ADMIN), ("sha256", "sha512")):
        armored = ssh.sign(key, MESSAGE, "-O", f"hashalg={hash_name}", namespace=namespace)
        assert sshsig.parse(armored) == SshSignature(public, key_type, namespace, hash_name, signature_type, None)


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


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (0x00, "no gesture: the security key was not touched"),
        (0x04, "no gesture: the security key was not touched"),
        (0xFE, "no gesture: the security key was not touched"),
        (0x01, "touch"),
        (0xFB, "touch"),
        (0x05, "touch and PIN"),
        (0xFF, "touch and PIN"),
    ],
)
def test_tells_the_gesture_by_the_flags(flags: int, words: str) -> None:
    assert sshsig.parse(SoftKey("sk-ed25519").sign(NAMESPACE_DIRECTIVE, MESSAGE, flags=flags)).gesture == words


def test_an_ordinary_key_tells_of_no_gesture() -> None:
    assert sshsig.parse(ARMORED).gesture == "no gesture: the key can't tell"


def test_refuses_base64_with_loose_bits_at_its_end() -> None:
    armored = armor(blob(namespace=b"nsx"))
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
def test_malformed_or_a_signature_inside_a_sound_armor(raw: bytes) -> None:
    read = samples.malformed_or(sshsig.parse, armor(raw))
    if isinstance(read, SshSignature):
        assert read.key_type.startswith("sk-") == (read.flags is not None)
