"""allowed_signers as a file: read once, mode and owner checked, the same bytes for everything that follows."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from broker.errors import Unavailable
from broker.trust.signer_lines import SignerLine, SkippedLine, date_s, read_lines
from broker.wire.names import Digest, Instant
from broker.wire.times import SECOND

MAX_BYTES = 256 * 1024
_DATE = re.compile(rb'valid-(after|before)="([0-9]{8,14}(?:Z|UTC)?)"', re.IGNORECASE)


class SignersUnusable(Unavailable):
    """allowed_signers can't be read or must not be believed. code: one of diagnosis.CODES; hint: for the operator."""

    def __init__(self, code: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.code = code
        self.hint = hint


@dataclass(frozen=True)
class SignersFile:
    """The content of allowed_signers at one moment. digest: its SHA-256."""

    content: bytes
    digest: Digest

    @cached_property
    def lines(self) -> tuple[SignerLine | SkippedLine, ...]:
        """Its lines, comments and blank ones left out."""
        return read_lines(self.content)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The keys in it, in file order, under whatever principal."""
        return tuple(line.fingerprint for line in self.lines if isinstance(line, SignerLine))

    @cached_property
    def _borders(self) -> list[int]:
        """The seconds at which a validity date may change the verdict on some key, sorted.

        Taken from the bytes and not from `lines`: where our reading and ssh-keygen's differ, a date too many
        costs one more process, and a date too few would let an expired key pass.
        """
        borders = []
        for kind, written in _DATE.findall(self.content):
            at_s = date_s(written.decode("ascii"))
            if at_s is not None:
                # ssh-keygen takes a key up to and including the second of valid-before.
                borders.append(at_s + 1 if kind.lower() == b"before" else at_s)
        return sorted(borders)

    def era(self, now: Instant) -> int:
        """Which stretch between validity dates `now` lies in: within one, no key's validity changes."""
        return bisect_right(self._borders, now // SECOND)


class SignersReader:
    """Reads allowed_signers anew at each call and tells when its content is another than the last seen.

    seen: the digest the journal already knows, so that a restart does not report an unchanged file.
    """

    def __init__(self, path: Path, on_change: Callable[[Digest, tuple[str, ...]], None], seen: Digest) -> None:
        self._path = path
        self._on_change = on_change
        self._seen = seen
        self._last: SignersFile | None = None

    def read(self) -> SignersFile:
        """The file as it is now. Raises SignersUnusable."""
        content = read_signers(self._path)
        if self._last is None or content != self._last.content:
            self._last = SignersFile(content, Digest(hashlib.sha256(content).digest()))
        if self._last.digest != self._seen:
            self._seen = self._last.digest
            self._on_change(self._last.digest, self._last.fingerprints)
        return self._last


def read_signers(path: Path) -> bytes:
    """The content of a regular file that nobody but its owner can write, the owner being us or root.

    A symlink is followed: what counts is the file it leads to. Raises SignersUnusable.
    """
    descriptor = _open(path)
    try:
        _check(os.fstat(descriptor), path)
        parts = []
        left = MAX_BYTES + 1
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)
    if left <= 0:
        raise SignersUnusable(
            "signers_too_large",
            f"{path} is larger than {MAX_BYTES} bytes",
            "delete all but the lines of the operator's keys",
        )
    return b"".join(parts)


def _open(path: Path) -> int:
    try:
        # Without O_NONBLOCK a FIFO in the file's place would stop the daemon here.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SignersUnusable(
            "signers_missing",
            f"{path} does not exist",
            "",
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> SignersUnusable:
    return SignersUnusable(
        "signers_unreadable",
        f"{path} can't be read: {error.strerror}",
        f"chmod u+r {shlex.quote(str(path))}; its owner must be uid {os.geteuid()}, the broker's user",
    )


def _kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "a FIFO" if stat.S_ISFIFO(mode) else "a device"


def _check(found: os.stat_result, path: Path) -> None:
    quoted = shlex.quote(str(path))
    if not stat.S_ISREG(found.st_mode):
        raise SignersUnusable(
            "signers_not_a_file",
            f"{path} is {_kind(found.st_mode)}, not a regular file",
            f"mv {quoted} {shlex.quote(f'{path}.old')}",
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise SignersUnusable(
            "signers_owner",
            f"{path} belongs to uid {found.st_uid}, expected {os.geteuid()} or 0",
            f"chown {os.geteuid()} {quoted}",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SignersUnusable(
            "signers_writable",
            f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})",
            f"chmod go-w {quoted}",
        )
