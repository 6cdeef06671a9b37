"""Paths, hosts and ids in the one form in which they are compared; what could mean two things is refused."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from enum import StrEnum
from typing import TypeAlias

from broker.errors import Malformed
from broker.wire.strict_json import MAX_INTEGER, JsonValue, kind_of

MAX_CHARS = 4096
Scalar: TypeAlias = str | int


class Kind(StrEnum):
    """How an operand is to be read."""

    PATH = "path"
    HOST = "host"
    ID = "id"

    @property
    def one(self) -> str:
        """For a sentence."""
        return f"{'an' if self is Kind.ID else 'a'} {self}"


_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://([^/?#]*)(?:[/?#].*)?", re.ASCII | re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?", re.ASCII)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:", re.ASCII)
_MEANT = "/\\.:%~"
"""The characters that have a meaning in a path; none may come out of a look-alike."""


def normal(kind: Kind, raw: JsonValue) -> Scalar:
    """The operand in its one form. Raises Malformed."""
    match kind:
        case Kind.PATH:
            return path(raw)
        case Kind.HOST:
            return host(raw)
        case Kind.ID:
            return identifier(raw)


def path(raw: JsonValue) -> str:
    """A path, absolute or not, that means one place on any system, without the slash at its end. Raises Malformed."""
    return folder(raw)[:-1] or "/"


def folder(raw: JsonValue) -> str:
    """The same with a slash at its end, as what may lie under it has it. Raises Malformed.

    Refused, not guessed: `.` and `..`, empty parts, backslashes, `~`, drives, streams, escapes like %2e, names that
    end in a dot or a space, and characters that a file system or a server may turn into others.
    """
    text = raw if type(raw) is str and 0 < len(raw) <= MAX_CHARS else _text(raw, "path")
    if text.isascii():
        if not text.isprintable():
            raise Malformed("path", "has a control character")
    else:
        _plain_unicode(text)
    if (
        "\\" in text
        or text[0] == "~"
        or (":" in text and ("::" in text or _DRIVE.match(text)))
        or ("%" in text and _ESCAPE.search(text))
    ):
        raise Malformed("path", "has a backslash, a ~, a drive, a stream or a %-escape: its meaning differs by system")
    whole = text if text[-1] == "/" else f"{text}/"
    if "//" in whole or "./" in whole or " /" in whole:
        raise Malformed("path", "has an empty part, `.`, `..`, or a name that ends in a dot or a space")
    return whole


def _plain_unicode(text: str) -> None:
    if not text.isprintable():
        raise Malformed("path", "has a character that can't be seen")
    if not unicodedata.is_normalized("NFC", text):
        raise Malformed("path", "is not in Unicode's composed form (NFC)")
    folded = unicodedata.normalize("NFKC", text)
    if any(folded.count(character) != text.count(character) for character in _MEANT):
        raise Malformed("path", "has a character that looks like / \\ . : % or ~")


def starts(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """What a path with a slash at its end (`folder`) starts with, when it lies at or under one of these normal ones:
    `/srv/ab` does not lie under `/srv/a`."""
    return tuple([prefix if prefix == "/" else f"{prefix}/" for prefix in prefixes])


def host(raw: JsonValue) -> str:
    """The host of a URL, or a bare HOST or HOST:PORT, in lower case. Raises Malformed.

    Refused, not guessed: user-info, names that are not ASCII or end in a dot, addresses in any form but the plain one,
    IPv4 inside IPv6, and URLs that two parsers could read differently.
    """
    text = _text(raw, "host")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise Malformed("host", "has a space, a backslash or a character beyond ASCII; write a name in its xn-- form")
    url = _URL.fullmatch(text)
    authority = _AUTHORITY.fullmatch(url[1] if url else text)
    if authority is None:
        raise Malformed("host", "expected a host, HOST:PORT, or a URL like https://host/path without user-info")
    name = authority[1].lower()
    if name.startswith("["):
        return _ipv6(name[1:-1])
    if not _NAME.fullmatch(name):
        raise Malformed("host", "is no host name: user-info, a dot at the end, an escape or a foreign character")
    return _ipv4(name) if _NUMBER.fullmatch(name.rpartition(".")[2]) else name


def _ipv4(name: str) -> str:
    """What ends in a number is an address, and has to be written as one."""
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError as error:
        raise Malformed("host", "is an address in disguise: write it as four decimal numbers") from error


def _ipv6(name: str) -> str:
    try:
        address = ipaddress.IPv6Address(name)
    except ValueError as error:
        raise Malformed("host", "is no IPv6 address") from error
    if address.ipv4_mapped or address.sixtofour or address.teredo or (int(address) >> 32 == 0 and int(address) > 1):
        raise Malformed("host", "is an IPv4 address inside an IPv6 one: write it as four decimal numbers")
    return f"[{address}]"


def identifier(raw: JsonValue) -> Scalar:
    """A text or a whole number, as it is: 5 and "5" are two. Raises Malformed."""
    if type(raw) is int and abs(raw) <= MAX_INTEGER:
        return raw
    return _text(raw, "id")


def _text(raw: JsonValue, kind: str) -> str:
    if not isinstance(raw, str):
        raise Malformed(kind, f"expected a text, found {kind_of(raw)}")
    if not 1 <= len(raw) <= MAX_CHARS:
        raise Malformed(kind, f"expected 1 to {MAX_CHARS} characters")
    return raw
