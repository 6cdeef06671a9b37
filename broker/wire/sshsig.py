"""The armored SSH signature, taken apart: what `ssh-keygen -Y verify` does not report.

docs/formats/signature.md is the normative page. Nothing here verifies anything.
Source of the format: PROTOCOL.sshsig and PROTOCOL.u2f of OpenSSH.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from dataclasses import dataclass

from broker.errors import Malformed

MAX_BYTES = 16384
USER_PRESENT = 0x01
USER_VERIFIED = 0x04
UNTOLD = "can't be told"
_ARMOR = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n((?:[A-Za-z0-9+/=]{1,76}\n)+)-----END SSH SIGNATURE-----\n?")
_WORD = re.compile(rb"[!-~]{1,128}")
_MAGIC = b"SSHSIG"
_VERSION = 1
_HASHES = ("sha256", "sha512")
_WEBAUTHN = "webauthn-sk-"
_SECURITY_KEY = ("sk-", _WEBAUTHN)


@dataclass(frozen=True, slots=True)
class SshSignature:
    """What a signature says of itself. flags: the security key's flag byte, None for a key that has none.

    public_key: the key blob inside the signature; key_type: its algorithm; signature_type: the signature's own.
    """

    public_key: bytes
    key_type: str
    namespace: str
    hash: str
    signature_type: str
    flags: int | None

    @property
    def gesture(self) -> str:
        """What the key says that its holder did. It signs its flags too, so believe it once the signature verified."""
        if self.flags is None:
            return "no gesture: the key can't tell"
        if not self.flags & USER_PRESENT:
            return "no gesture: the security key was not touched"
        return "touch and PIN" if self.flags & USER_VERIFIED else "touch"


class _Reader:
    """SSH wire strings and numbers from the front of a blob."""

    def __init__(self, blob: bytes, where: str) -> None:
        self._blob = blob
        self._where = where
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._blob):
            raise Malformed(self._where, "cut short")
        taken = self._blob[self._at : end]
        self._at = end
        return taken

    def number(self) -> int:
        found: int = struct.unpack(">I", self.take(4))[0]
        return found

    def string(self) -> bytes:
        return self.take(self.number())

    def word(self, name: str) -> str:
        raw = self.string()
        if not _WORD.fullmatch(raw):
            raise Malformed(f"{self._where}.{name}", "expected 1 to 128 printable ASCII characters")
        return raw.decode("ascii")

    def end(self) -> None:
        if self._at != len(self._blob):
            raise Malformed(self._where, "bytes after the end")


def parse(armored: bytes) -> SshSignature:
    """The one signature in these bytes. Raises Malformed, also for what ssh-keygen tolerates (text after the armor)."""
    reader = _Reader(_dearmor(armored), "signature")
    if reader.take(len(_MAGIC)) != _MAGIC or reader.number() != _VERSION:
        raise Malformed("signature", "expected SSHSIG, version 1")
    public_key = reader.string()
    namespace = reader.word("namespace")
    if reader.string():
        raise Malformed("signature.reserved", "expected nothing")
    hash_name = reader.word("hash")
    if hash_name not in _HASHES:
        raise Malformed("signature.hash", "expected sha256 or sha512")
    signature_type, flags = _inner(reader.string())
    reader.end()
    key_type = _Reader(public_key, "signature.public_key").word("type")
    # Certificates carry the plain algorithm in their signatures, so types can differ, but a security key never signs
    # without its flags: a signature that hides them must not pass for one of an ordinary key.
    if key_type.startswith("sk-") != (flags is not None):
        raise Malformed("signature.type", "the signature's type does not belong to the key's")
    return SshSignature(public_key, key_type, namespace, hash_name, signature_type, flags)


def _dearmor(armored: bytes) -> bytes:
    if len(armored) > MAX_BYTES:
        raise Malformed("signature", f"{len(armored)} bytes, more than {MAX_BYTES}")
    found = _ARMOR.fullmatch(armored)
    if not found:
        raise Malformed("signature", "expected one block from BEGIN to END SSH SIGNATURE and nothing else")
    text = found[1].replace(b"\n", b"")
    try:
        blob = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Malformed("signature", "not base64 between BEGIN and END") from error
    if base64.b64encode(blob) != text:
        raise Malformed("signature", "not the canonical base64 of its bytes")
    return blob


def _inner(blob: bytes) -> tuple[str, int | None]:
    """The signature's type and flags; PROTOCOL.u2f puts flags, counter and the browser's data behind the signature."""
    reader = _Reader(blob, "signature.signature")
    signature_type = reader.word("type")
    if not reader.string():
        raise Malformed("signature.signature", "empty")
    flags: int | None = None
    if signature_type.startswith(_SECURITY_KEY):
        flags = reader.take(1)[0]
        reader.number()  # the key's counter: synced keys leave it at 0, so it proves nothing
    if signature_type.startswith(_WEBAUTHN):
        for _ in ("origin", "client data", "extensions"):
            reader.string()
    reader.end()
    return signature_type, flags
