"""A head: the number and digest of a journal's record, as a few lines that people may keep wherever they like."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from broker.errors import Malformed
from broker.wire.names import Digest, Instance

MAX_BYTES = 4096
_TEXT = re.compile(
    r"lever-head 1\ninstance ([a-z0-9-]{1,63})\nrecord ([1-9][0-9]{0,17})\ndigest ([0-9a-f]{64})\n", re.ASCII
)
_SIGNATURE = re.compile(r"signature ([A-Za-z0-9+/]{1,200}={0,2})\n", re.ASCII)


@dataclass(frozen=True, slots=True)
class Head:
    """A record that was durable: its number, and the digest that the next one links to."""

    seq: int
    digest: Digest


def encode(head: Head, instance: Instance) -> bytes:
    """Four lines. `parse` reads them."""
    return f"lever-head 1\ninstance {instance}\nrecord {head.seq}\ndigest {head.digest.hex()}\n".encode("ascii")


def parse(raw: bytes, instance: Instance) -> Head:
    """The head of this instance. Raises Malformed."""
    found = _TEXT.fullmatch(raw[:MAX_BYTES].decode("ascii", "replace"))
    if not found or found[1] != instance:
        raise Malformed("head", f"other text than its four lines of instance {instance}")
    return Head(int(found[2]), Digest(bytes.fromhex(found[3])))


def encode_signed(text: bytes, signature: bytes) -> bytes:
    """The four lines, and a fifth with the signature over them."""
    return text + b"signature " + base64.b64encode(signature) + b"\n"


def split_signed(raw: bytes) -> tuple[bytes, bytes]:
    """The four lines and the signature, neither of them checked. Raises Malformed."""
    at = raw.rfind(b"signature ")
    found = _SIGNATURE.fullmatch(raw[at:].decode("ascii", "replace")) if at > 0 and len(raw) <= MAX_BYTES else None
    try:
        # Written again it must be the same bytes: base64 has many spellings of one signature.
        if found and encode_signed(raw[:at], signature := base64.b64decode(found[1], validate=True)) == raw:
            return raw[:at], signature
    except binascii.Error:
        pass
    raise Malformed("head", "no line `signature` at its end")
