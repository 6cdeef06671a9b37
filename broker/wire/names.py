"""The small words of the protocol, each with its alphabet: unlike strings are unlike types."""

from __future__ import annotations

import re
from typing import NewType

from broker.errors import Malformed

Cn = NewType("Cn", str)
DirectiveId = NewType("DirectiveId", str)
Generation = NewType("Generation", int)
Instance = NewType("Instance", str)
Fingerprint = NewType("Fingerprint", str)
"""A key as ssh-keygen names it: `SHA256:` and unpadded base64."""
Digest = NewType("Digest", bytes)
"""A SHA-256, 32 bytes."""
Instant = NewType("Instant", int)
"""Microseconds since 1970-01-01T00:00:00Z."""

NAMESPACE_DIRECTIVE = "lever-operator-directive@lever.dev"
NAMESPACE_ADMIN = "lever-operator-admin@lever.dev"
SELFTEST = Cn("selftest")

_CN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HEX = re.compile(r"[0-9a-f]{64}")
_TOOL = re.compile(r"[A-Za-z0-9._:/-]{1,128}")


def cn(raw: object, where: str = "cn") -> Cn:
    """1 to 63 of `a-z 0-9 -`, neither first nor last a hyphen. Raises Malformed."""
    if not isinstance(raw, str) or not _CN.fullmatch(raw):
        raise Malformed(where, "expected 1 to 63 of a-z 0-9 -, not starting or ending with -")
    return Cn(raw)


def instance(raw: object, where: str = "instance") -> Instance:
    """An instance's name has the alphabet of a CN: it stands in principals, unit names and URIs. Raises Malformed."""
    return Instance(cn(raw, where))


def directive_id(raw: object, where: str = "directive_id") -> DirectiveId:
    """1 to 64 of `A-Z a-z 0-9 . _ -`. Raises Malformed."""
    if not isinstance(raw, str) or not _ID.fullmatch(raw):
        raise Malformed(where, "expected 1 to 64 of A-Z a-z 0-9 . _ -")
    return DirectiveId(raw)


def is_directive_id(raw: str) -> bool:
    """Has it the alphabet of an id? For who may not take another time over one that has not."""
    return _ID.fullmatch(raw) is not None


def attempt(raw: object, where: str = "attempt") -> str:
    """A client's key for one attempt at a consume: the alphabet of an id. Raises Malformed."""
    return directive_id(raw, where)


def tool_word(raw: object, where: str) -> str:
    """A tool's or an operation's name: 1 to 128 of `A-Z a-z 0-9 . _ : / -`. Raises Malformed."""
    if not isinstance(raw, str) or not _TOOL.fullmatch(raw):
        raise Malformed(where, "expected 1 to 128 of A-Z a-z 0-9 . _ : / -")
    return raw


def generation(raw: object, where: str = "generation") -> Generation:
    """An enrolment's number: a whole number from 1 up. Raises Malformed."""
    if type(raw) is not int or raw < 1:
        raise Malformed(where, "expected a whole number from 1 up")
    return Generation(raw)


def digest(raw: object, where: str) -> Digest:
    """A SHA-256 as 64 of `0-9 a-f`. Raises Malformed."""
    if not isinstance(raw, str) or not _HEX.fullmatch(raw):
        raise Malformed(where, "expected a SHA-256 as 64 of 0-9 a-f")
    return Digest(bytes.fromhex(raw))


def principal(name: Instance) -> str:
    """The one name in allowed_signers under which this instance's operator keys stand."""
    return f"operator@{name}"
