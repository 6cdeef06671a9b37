"""A security key in software: it signs with whatever flags a test wants, which no real key does.

Source of the layout: PROTOCOL.sshsig and PROTOCOL.u2f of OpenSSH.
tests/wire/test_soft_key.py holds it to real ssh-keygen.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from typing import Literal

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Kind = Literal["sk-ed25519", "sk-ecdsa", "webauthn"]
HashName = Literal["sha256", "sha512"]

_ED25519 = b"sk-ssh-ed25519@openssh.com"
_ECDSA = b"sk-ecdsa-sha2-nistp256@openssh.com"
_ARMOR_WIDTH = 70


def ssh_string(raw: bytes) -> bytes:
    """Bytes behind their length, as SSH writes them."""
    return struct.pack(">I", len(raw)) + raw


def to_sign(namespace: str, message: bytes, hash_name: HashName) -> bytes:
    """The blob that an SSHSIG signs in the message's place."""
    digest = hashlib.new(hash_name, message).digest()
    return b"SSHSIG" + b"".join(map(ssh_string, (namespace.encode(), b"", hash_name.encode(), digest)))


def armor(blob: bytes) -> bytes:
    """The text that `ssh-keygen -Y sign` would write around this blob."""
    text = base64.b64encode(blob)
    lines = [text[at : at + _ARMOR_WIDTH] for at in range(0, len(text), _ARMOR_WIDTH)]
    return b"\n".join((b"-----BEGIN SSH SIGNATURE-----", *lines, b"-----END SSH SIGNATURE-----", b""))


def client_data_of(signed: bytes, origin: str) -> bytes:
    """What a browser hands to a security key: its own JSON around the challenge."""
    challenge = base64.urlsafe_b64encode(signed).rstrip(b"=").decode()
    fields = {"type": "webauthn.get", "challenge": challenge, "origin": origin, "crossOrigin": False}
    return json.dumps(fields, separators=(",", ":")).encode()


class SoftKey:
    """One key. kind: sk-ed25519 or sk-ecdsa as ssh-keygen makes them, webauthn for a passkey in a browser."""

    def __init__(self, kind: Kind, *, application: str | None = None) -> None:
        self.kind = kind
        default = "broker.example" if kind == "webauthn" else "ssh:"
        self._application = (application or default).encode()
        self._counter = 0
        self._ed25519 = ed25519.Ed25519PrivateKey.generate()
        self._ecdsa = ec.generate_private_key(ec.SECP256R1())

    @property
    def public_blob(self) -> bytes:
        """The public key as it stands in signatures and, in base64, in allowed_signers."""
        if self.kind == "sk-ed25519":
            parts = [_ED25519, self._ed25519.public_key().public_bytes_raw()]
        else:
            point = self._ecdsa.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
            parts = [_ECDSA, b"nistp256", point]
        return b"".join(map(ssh_string, (*parts, self._application)))

    @property
    def public_line(self) -> str:
        """`type base64`, to stand behind a principal in allowed_signers."""
        name = _ED25519 if self.kind == "sk-ed25519" else _ECDSA
        return f"{name.decode()} {base64.b64encode(self.public_blob).decode()}"

    def sign(
        self,
        namespace: str,
        message: bytes,
        *,
        flags: int = 1,
        hash_name: HashName = "sha512",
        origin: str = "https://broker.example",
        client_data: bytes | None = None,
    ) -> bytes:
        """The armored signature. flags: bit 0 user present, bit 2 user verified; client_data: for a lying browser."""
        self._counter += 1
        signed = to_sign(namespace, message, hash_name)
        tail = struct.pack(">BI", flags, self._counter)
        browser = b""
        if self.kind == "webauthn":
            signed = client_data if client_data is not None else client_data_of(signed, origin)
            browser = b"".join(map(ssh_string, (origin.encode(), signed, b"")))
        touched = hashlib.sha256(self._application).digest() + tail + hashlib.sha256(signed).digest()
        signature = self._raw_signature(touched) + tail + browser
        fields = (self.public_blob, namespace.encode(), b"", hash_name.encode(), signature)
        return armor(b"SSHSIG" + struct.pack(">I", 1) + b"".join(map(ssh_string, fields)))

    def _raw_signature(self, touched: bytes) -> bytes:
        """The signature's type and bytes, before flags and counter."""
        if self.kind == "sk-ed25519":
            return ssh_string(_ED25519) + ssh_string(self._ed25519.sign(touched))
        halves = utils.decode_dss_signature(self._ecdsa.sign(touched, ec.ECDSA(hashes.SHA256())))
        name = b"webauthn-" + _ECDSA if self.kind == "webauthn" else _ECDSA
        # One byte more than the number needs, where it needs it, keeps the sign bit clear: SSH's mpint.
        numbers = b"".join(ssh_string(half.to_bytes(half.bit_length() // 8 + 1, "big")) for half in halves)
        return ssh_string(name) + ssh_string(numbers)
