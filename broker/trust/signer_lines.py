"""The lines of allowed_signers as ssh-keygen understands them, for telling the operator what is in the file.

Nothing is accepted on the strength of this reading: only ssh-keygen's exit status accepts.
Source: ssh-keygen(1), ALLOWED SIGNERS.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import fnmatch
import hashlib
import re
import time
from dataclasses import dataclass

from broker.wire.names import Digest, Fingerprint

_PRINCIPALS = re.compile(r'[ \t]*(?:"([^"]*)"|([^ \t"]+))(?:[ \t]+(.*))?')
_OPTION = re.compile(r'([A-Za-z-]+)(?:="((?:[^"\\]|\\.)*)")?(?:,|$)')
_KEY = re.compile(r"([a-z0-9@.-]+)[ \t]+([A-Za-z0-9+/]+=*)(?:[ \t].*)?")
_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)?)?((?:Z|UTC)?)", re.ASCII | re.IGNORECASE)
_VALUED = ("namespaces", "valid-after", "valid-before")
OPTIONS = ("cert-authority", *_VALUED)


@dataclass(frozen=True, slots=True)
class SignerLine:
    """A line that names a key. principals and namespaces are pattern lists; the dates are seconds since 1970."""

    number: int
    principals: str
    namespaces: str | None
    valid_after_s: int | None
    valid_before_s: int | None
    is_authority: bool
    fingerprint: Fingerprint
    key_digest: Digest

    def is_for(self, principal: str) -> bool:
        """Whether ssh-keygen looks at this line for that principal."""
        return matches(principal, self.principals)

    def allows(self, namespace: str) -> bool:
        """Whether its namespaces option, if any, lets this namespace through."""
        return self.namespaces is None or matches(namespace, self.namespaces)


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that ssh-keygen passes over with no more than a word on standard error."""

    number: int
    why: str


class _Skip(Exception):
    pass


def read_lines(content: bytes) -> tuple[SignerLine | SkippedLine, ...]:
    """Every line of the file that is neither blank nor a comment."""
    found: list[SignerLine | SkippedLine] = []
    for number, raw in enumerate(content.split(b"\n"), 1):
        text = raw.decode("utf-8", "replace").rstrip("\r").strip(" \t")
        if not text or text.startswith("#"):
            continue
        try:
            found.append(_line(number, text))
        except _Skip as error:
            found.append(SkippedLine(number, str(error)))
    return tuple(found)


def _line(number: int, text: str) -> SignerLine:
    whole = _PRINCIPALS.fullmatch(text)
    if not whole or not whole[3]:
        raise _Skip("no key on it")
    rest = whole[3].lstrip(" \t")
    key, options = _key(rest), {}
    if key is None:
        written, rest = _cut_options(rest)
        options = _options(written)
        key = _key(rest)
    if key is None:
        raise _Skip("not a public key")
    after, before = _date(options, "valid-after"), _date(options, "valid-before")
    if after is not None and before is not None and after > before:
        raise _Skip("valid-before is earlier than valid-after")
    shown = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    return SignerLine(
        number=number,
        principals=whole[1] or whole[2] or "",
        namespaces=options.get("namespaces"),
        valid_after_s=after,
        valid_before_s=before,
        is_authority="cert-authority" in options,
        fingerprint=Fingerprint(f"SHA256:{shown}"),
        key_digest=Digest(hashlib.sha256(key).digest()),
    )


def _key(text: str) -> bytes | None:
    found = _KEY.fullmatch(text)
    if not found:
        return None
    try:
        blob = base64.b64decode(found[2], validate=True)
    except binascii.Error:
        return None
    if base64.b64encode(blob).decode() != found[2]:
        return None
    name = found[1].encode()
    return blob if blob[4 : 4 + len(name)] == name and blob[:4] == len(name).to_bytes(4, "big") else None


def _cut_options(text: str) -> tuple[str, str]:
    """The options and the rest: options end at the first blank outside quotes."""
    quoted = False
    for at, sign in enumerate(text):
        if sign == '"' and (at == 0 or text[at - 1] != "\\"):
            quoted = not quoted
        elif sign in " \t" and not quoted:
            return text[:at], text[at:].lstrip(" \t")
    return text, ""


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _OPTION.match(text, at)
        name = found[1].lower() if found else ""
        if not found or name not in OPTIONS:
            raise _Skip(f"unknown option {name}, or no key" if name else "no key")
        valued = name in _VALUED
        if valued != (found[2] is not None) or (valued and name in options):
            raise _Skip(f"bad option {name}")
        options[name] = (found[2] or "").replace('\\"', '"')
        at = found.end()
    return options


def _date(options: dict[str, str], name: str) -> int | None:
    if name not in options:
        return None
    at_s = date_s(options[name])
    if at_s is None or at_s <= 0:
        raise _Skip(f"bad date in {name}")
    return at_s


def date_s(text: str) -> int | None:
    """YYYYMMDD or YYYYMMDDHHMM[SS], with Z for UTC and else in this machine's time zone, as seconds since 1970."""
    found = _DATE.fullmatch(text)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(found[at] or 0) for at in range(1, 7))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    # The last 0: ssh-keygen never counts daylight saving time into a date.
    parts = (year, month, day, hour, minute, second, 0, 0, 0)
    try:
        return calendar.timegm(parts) if found[7] else int(time.mktime(parts))
    except (OverflowError, ValueError):
        return None


def matches(word: str, patterns: str) -> bool:
    """Whether a pattern list of ssh (`*`, `?`, comma, leading `!` for never) matches a word."""
    hit = False
    for pattern in patterns.split(","):
        never = pattern.startswith("!")
        # fnmatch's expressions take no time that grows with the power of the pattern. ssh knows no brackets.
        if re.fullmatch(fnmatch.translate(pattern[never:].replace("[", "[[]")), word):
            if never:
                return False
            hit = True
    return hit
