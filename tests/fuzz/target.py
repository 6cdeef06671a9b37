"""What a target is, and the invariant that every one of them is held to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import UnionType
from typing import Any

from broker.errors import BrokerError, Malformed
from tests.fuzz.mutation import mutated

_SHOWN_BYTES = 2000


class Violation(AssertionError):
    """Bytes that broke the invariant, spelt so that they can be tried again."""

    def __init__(self, target: str, raw: bytes, what: str) -> None:
        shown = raw.hex() if len(raw) <= _SHOWN_BYTES else f"{raw[:_SHOWN_BYTES].hex()}... ({len(raw)} bytes)"
        super().__init__(f"{target}: {what}; bytes in hexadecimal: {shown}")


@dataclass(frozen=True, slots=True)
class Target:
    """One parser, held to: a value of `gives`, or one of `refuses`, and nothing else, whatever the bytes.

    covers: the functions it stands for, by their dotted names. samples: bytes that are taken as they are.
    again: for a format with one spelling, the bytes of a value. same: for one with several, the value after
    another round of writing and reading. tries: how many in CI.
    """

    name: str
    covers: tuple[str, ...]
    parse: Callable[[bytes], Any]
    samples: tuple[bytes, ...]
    gives: type | UnionType | tuple[type, ...] = object
    refuses: tuple[type[BrokerError], ...] = (Malformed,)
    again: Callable[[Any], bytes] | None = None
    same: Callable[[Any], Any] | None = None
    tries: int = 2000

    def check(self, raw: bytes) -> bool:
        """Whether the bytes were taken. Raises Violation, for the least of these bytes that it could find."""
        try:
            return self._check(raw)
        except Violation:
            self._check(_smallest(raw, self._violates))
            raise

    def _violates(self, raw: bytes) -> bool:
        try:
            self._check(raw)
        except Violation:
            return True
        return False

    def _check(self, raw: bytes) -> bool:
        try:
            value = self.parse(raw)
        except self.refuses as refused:
            self._check_words(raw, refused)
            return False
        except Exception as error:
            raise Violation(self.name, raw, f"raised {type(error).__name__}: {error}") from error
        if not isinstance(value, self.gives):
            raise Violation(self.name, raw, f"gave {value!r}")
        try:
            self._check_round_trip(value, raw)
        except Violation:
            raise
        except Exception as error:
            raise Violation(self.name, raw, f"is taken and can't be written: {error!r}") from error
        return True

    def _check_round_trip(self, value: Any, raw: bytes) -> None:
        if self.again is not None and (written := self.again(value)) != raw:
            raise Violation(self.name, raw, f"is taken and would be written as {written.hex()}")
        if self.same is not None and (other := self.same(value)) != value:
            raise Violation(self.name, raw, f"says {value!r}, and when written {other!r}")

    def _check_words(self, raw: bytes, refused: BrokerError) -> None:
        """An error goes to terminals and logs: foreign bytes must not write lines or commands of their own there."""
        for line in str(refused).split("\n"):
            if not (line.isascii() and line.isprintable()):
                raise Violation(self.name, raw, f"is refused in words that are not plain: {line!r}")


def _smallest(raw: bytes, violates: Callable[[bytes], bool]) -> bytes:
    """The bytes without each piece that the violation does not need, from halves down to single bytes."""
    size = len(raw) // 2
    while size:
        at = 0
        while at < len(raw):
            if violates(less := raw[:at] + raw[at + size :]):
                raw = less
            else:
                at += size
        size //= 2
    return raw


def soak(target: Target, seconds: float, seed: int) -> int:
    """Try mutations for so long; how many were tried. Raises Violation."""
    random, tried, until = Random(seed), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        target.check(mutated(target.samples, random))
        tried += 1
    return tried
