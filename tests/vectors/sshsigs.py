"""SSH signatures: blobs built part by part, each refusal one part away from a blob that is taken."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.fakes.soft_key import armor, ssh_string
from tests.vectors.case import Case, File, refused

_PAGE = (Path(__file__).parents[2] / "docs/formats/signature.md").read_text(encoding="utf-8")
_REAL = _PAGE.split("```text\n")[1].split("\n```")[0].encode() + b"\n"
_SK, _SK_ECDSA = b"sk-ssh-ed25519@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com"
_BEGIN, _END = b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----"


def blob(
    *,
    magic: bytes = b"SSHSIG",
    version: int = 1,
    key: bytes = ssh_string(b"ssh-ed25519") + ssh_string(bytes(32)),
    namespace: bytes = b"lever-operator-directive@lever.dev",
    reserved: bytes = b"",
    hash_name: bytes = b"sha512",
    inner: bytes = ssh_string(b"ssh-ed25519") + ssh_string(bytes(64)),
    after: bytes = b"",
) -> bytes:
    """What stands inside the armor."""
    fields = b"".join(map(ssh_string, (key, namespace, reserved, hash_name, inner)))
    return magic + struct.pack(">I", version) + fields + after


_PLAIN_INNER = ssh_string(b"ssh-ed25519") + ssh_string(bytes(64))
_SK_KEY = ssh_string(_SK) + ssh_string(bytes(32)) + ssh_string(b"ssh:")
_SK_INNER = ssh_string(_SK) + ssh_string(bytes(64))
_WEB_KEY = ssh_string(_SK_ECDSA) + ssh_string(b"nistp256") + ssh_string(bytes(65)) + ssh_string(b"broker.example")
_WEB_INNER = ssh_string(b"webauthn-" + _SK_ECDSA) + ssh_string(bytes(64))
_WEB_TAIL = bytes.fromhex("0500000000") + ssh_string(b"https://broker.example") + ssh_string(b"{}") + ssh_string(b"")
_PLAIN = armor(blob())
_BODY = _PLAIN.split(b"\n")[1]

_TAKEN = {
    "a real one": (_REAL, "ssh-ed25519"),
    "an ordinary key": (_PLAIN, "ssh-ed25519"),
    "no line break at the end": (_PLAIN[:-1], "ssh-ed25519"),
    "SHA-256": (armor(blob(hash_name=b"sha256")), "ssh-ed25519"),
    "a namespace of 128": (armor(blob(namespace=b"n" * 128)), "ssh-ed25519"),
    "a security key, touched": (armor(blob(key=_SK_KEY, inner=_SK_INNER + bytes.fromhex("0100000007"))), _SK.decode()),
    "a security key, not touched": (armor(blob(key=_SK_KEY, inner=_SK_INNER + bytes(5))), _SK.decode()),
    "a passkey": (armor(blob(key=_WEB_KEY, inner=_WEB_INNER + _WEB_TAIL)), _SK_ECDSA.decode()),
}
_BLOBS: dict[str, tuple[bytes, str]] = {
    "nothing in the armor but zeros": (bytes(3), "signature"),
    "another magic": (blob(magic=b"SSHSIH"), "signature"),
    "version 2": (blob(version=2), "signature"),
    "a byte behind the end": (blob(after=b"\x00"), "signature"),
    "cut short": (blob()[:-1], "signature"),
    "cut short in the version": (blob()[:9], "signature"),
    "a length beyond the end": (b"SSHSIG\x00\x00\x00\x01\xff\xff\xff\xff", "signature"),
    "something reserved": (blob(reserved=b"x"), "signature.reserved"),
    "no namespace": (blob(namespace=b""), "signature.namespace"),
    "a space in the namespace": (blob(namespace=b"n s"), "signature.namespace"),
    "NUL in the namespace": (blob(namespace=b"ns\x00"), "signature.namespace"),
    "a line feed in the namespace": (blob(namespace=b"ns\n"), "signature.namespace"),
    "a letter beyond ASCII in the namespace": (blob(namespace="n\u00e9".encode()), "signature.namespace"),
    "a namespace of 129": (blob(namespace=b"n" * 129), "signature.namespace"),
    "SHA-1": (blob(hash_name=b"sha1"), "signature.hash"),
    "a hash in capitals": (blob(hash_name=b"SHA512"), "signature.hash"),
    "no hash": (blob(hash_name=b""), "signature.hash"),
    "no key": (blob(key=b""), "signature.public_key"),
    "a key without a type": (blob(key=ssh_string(b"")), "signature.public_key.type"),
    "no signature": (blob(inner=b""), "signature.signature"),
    "a type and no signature": (blob(inner=ssh_string(b"ssh-ed25519")), "signature.signature"),
    "an empty signature": (blob(inner=ssh_string(b"ssh-ed25519") + ssh_string(b"")), "signature.signature"),
    "a signature without a type": (blob(inner=ssh_string(b"") + ssh_string(bytes(64))), "signature.signature.type"),
    "a byte behind the signature": (blob(inner=_PLAIN_INNER + b"\x01"), "signature.signature"),
    "an ordinary key with flags": (blob(inner=_SK_INNER + bytes(5)), "signature.type"),
    "a security key without flags": (blob(key=_SK_KEY), "signature.type"),
    "no flags behind a security key's signature": (blob(key=_SK_KEY, inner=_SK_INNER), "signature.signature"),
    "flags that are cut short": (blob(key=_SK_KEY, inner=_SK_INNER + bytes(4)), "signature.signature"),
    "a byte behind the flags": (blob(key=_SK_KEY, inner=_SK_INNER + bytes(6)), "signature.signature"),
    "a passkey without the browser's part": (blob(key=_WEB_KEY, inner=_WEB_INNER + bytes(5)), "signature.signature"),
}
_ARMORS = {
    "nothing": b"",
    "words behind the armor": _PLAIN + b"words of a stranger\n",
    "two line breaks at the end": _PLAIN + b"\n",
    "two armors": _PLAIN * 2,
    "a line break before the armor": b"\n" + _PLAIN,
    "a byte order mark": b"\xef\xbb\xbf" + _PLAIN,
    "lines that end as on Windows": _PLAIN.replace(b"\n", b"\r\n"),
    "an empty line": _PLAIN.replace(_BODY, _BODY + b"\n"),
    "a space in the base64": _PLAIN.replace(_BODY, _BODY + b" "),
    "a tab in the base64": _PLAIN.replace(_BODY, _BODY[:8] + b"\t" + _BODY[8:]),
    "a letter that is no base64": _PLAIN.replace(_BODY, _BODY[:-1] + b"."),
    "base64 that is cut short": _PLAIN.replace(_BODY, _BODY[:-1]),
    "padding in the middle": _PLAIN.replace(_BODY, _BODY[:-1] + b"="),
    "another label": _PLAIN.replace(b"SIGNATURE", b"SIGNATURES"),
    "a second beginning for the end": _PLAIN.replace(_END, _BEGIN),
    "no base64": b"\n".join((_BEGIN, _END, b"")),
    "a line of 80": b"\n".join((_BEGIN, _PLAIN.replace(b"\n", b"")[29:109], _END, b"")),
    "more than 16384 bytes": armor(blob(inner=ssh_string(b"ssh-ed25519") + ssh_string(bytes(16384)))),
}

FILE = File(
    "sshsigs",
    "Armored SSH signatures as a broker reads them beside `ssh-keygen -Y verify`, which alone says whether one is "
    "good. `says`: the type of the key. Only the first is a real signature.",
    "docs/formats/signature.md",
    (
        *(Case(name, raw, says=kind) for name, (raw, kind) in _TAKEN.items()),
        *(refused(name, armor(raw), where) for name, (raw, where) in _BLOBS.items()),
        *(refused(name, raw, "signature") for name, raw in _ARMORS.items()),
    ),
)
