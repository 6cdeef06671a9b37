"""Real ssh-keygen, for the signatures that tests of the wire need."""

from __future__ import annotations

import subprocess
from pathlib import Path

NAMESPACE = "lever-operator-directive@lever.dev"
PRINCIPAL = "operator@demo"


def make_key(folder: Path, *options: str) -> Path:
    """A key pair without a passphrase; options: `-t ed25519` and the like."""
    path = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", "test", *options, "-f", str(path)], check=True)
    return path


def sign(key: Path, message: bytes, *options: str, namespace: str = NAMESPACE) -> bytes:
    """The armored signature over the message."""
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", namespace, *options]
    return subprocess.run(argv, input=message, capture_output=True, check=True).stdout


def verifies(folder: Path, public_line: str, armored: bytes, message: bytes, namespace: str = NAMESPACE) -> bool:
    """Whether ssh-keygen accepts the signature for a principal that has this key."""
    signers, signature = folder / "allowed_signers", folder / "signature"
    signers.write_text(f"{PRINCIPAL} {public_line}\n")
    signature.write_bytes(armored)
    argv = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", PRINCIPAL, "-n", namespace]
    ended = subprocess.run([*argv, "-s", str(signature)], input=message, capture_output=True, check=False)
    return ended.returncode == 0
