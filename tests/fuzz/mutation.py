"""Valid documents made hostile. All chance comes from a `Random`: Hypothesis gives one that it can shrink."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

MAX_BYTES = 300_000
_CHANGES_AT_MOST = 4
_SLICE_AT_MOST = 24
_DIGITS = re.compile(rb"[0-9]+")
_MEMBER = re.compile(rb'"[^"\n]{0,64}"\s*:[^,{}\[\]\n]{1,200},?')
_LINE = re.compile(rb"[^\n]*\n")
TOKENS = (
    # numbers
    b"NaN", b"-Infinity", b"1e400", b"-0", b"9007199254740992", b"9" * 5000, b"1.0", b"1e-400", b"0x1f", b"1_000",
    # words and keys
    b"true", b"null", b'"a":1,"a":2', b'"a":1,"A":2', b'"__proto__":{}', b"{}", b"[]", b'""', b"~", b"yes", b"&a *a",
    b"!!x y",
    # what is not text: overlong, cut short, beyond Unicode, half a pair in UTF-8, UTF-16, controls, look-alikes
    b"\xff", b"\xc0\xaf", b"\xe2\x82", b"\xf4\xbf\xbf\xbf", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\x00",
    b"\x1b[2K",
    b'"\\ud800"', b"\\ud800", b"\\u0000", b'"\\UFFFFFFFF"', b"%YAML 9.9\n---\n",
    "\u202e".encode(), "\u0430".encode(), "\u2028".encode(), "\u00df\u1e9e".encode(), b"\x85",
    # nesting
    b"[" * 70, b'{"a":' * 70, b"[" * 20_000, b"- " * 70, b"\x81" * 300, b"\xa1\x61a" * 70, b"\x9f", b"\xd9\xd9\xf7",
    # lengths
    b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x80",
    # signs that mean something to one format or another
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"=", b"\n", b"\r\n", b"\r\n\r\n", b"\t", b" ", b"#", b"*",
    b"%00", b"&", b"..",
)  # fmt: skip

Change = Callable[[bytes, Random, Sequence[bytes]], bytes]


def _span(raw: bytes, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(raw))
    return start, min(len(raw), start + random.randint(0, _SLICE_AT_MOST))


def _cut(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    return raw[: random.randint(0, len(raw))]


def _drop(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    start, end = _span(raw, random)
    return raw[:start] + raw[end:]


def _double(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    start, end = _span(raw, random)
    return raw[:end] + raw[start:]


def _flip(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    if not raw:
        return raw
    at = random.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ (1 << random.randrange(8))]) + raw[at + 1 :]


def _noise(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    start, end = _span(raw, random)
    return raw[:start] + random.randbytes(random.randint(1, 8)) + raw[end:]


def _token(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    start, end = _span(raw, random)
    return raw[:start] + random.choice(TOKENS) + raw[random.choice((start, end)) :]


def _splice(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    other = random.choice(others)
    return raw[: random.randint(0, len(raw))] + other[random.randint(0, len(other)) :]


def _swap(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    one, two, three = sorted(random.randint(0, len(raw)) for _ in range(3))
    return raw[:one] + raw[two:three] + raw[one:two] + raw[three:]


def _found(pattern: re.Pattern[bytes], raw: bytes, random: Random) -> tuple[int, int]:
    spans = [match.span() for match in pattern.finditer(raw)]
    return random.choice(spans) if spans else (0, 0)


def _number(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    start, end = _found(_DIGITS, raw, random)
    size = random.choice((1, 2, 8, 16, 19, 20, 400))
    return raw[:start] + b"".join(b"%d" % random.randrange(10) for _ in range(size)) + raw[end:]


def _twice(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    """A member of an object, or a line, once more."""
    start, end = _found(random.choice((_MEMBER, _LINE)), raw, random)
    return raw[:end] + raw[start:end] + raw[end:]


def _wrap(raw: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    depth = random.choice((1, 16, 64, 65, 300))
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"\x81", b""), (b"\xa1\x61a", b"")))
    return opened * depth + raw + closed * depth


CHANGES: tuple[Change, ...] = (
    _cut, _drop, _double, _flip, _flip, _noise, _token, _token, _splice, _swap, _number, _twice, _wrap,
)  # fmt: skip


def mutated(samples: Sequence[bytes], random: Random) -> bytes:
    """A sample after one to four changes; now and then bytes that never were one."""
    if random.randrange(50) == 0:
        return random.randbytes(random.randint(0, 64))
    raw = random.choice(samples)
    for _ in range(random.randint(1, _CHANGES_AT_MOST)):
        raw = random.choice(CHANGES)(raw, random, samples)
    return raw[:MAX_BYTES]
