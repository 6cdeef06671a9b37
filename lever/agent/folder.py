"""The identity folder: what lies in it, who may touch it when, and how it is replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from filelock import FileLock, Timeout

from broker.errors import Malformed
from lever.agent import disk, identity, keys
from lever.agent.disk import Disk
from lever.agent.failures import Busy, Damaged, DiskFailed, NoIdentity
from lever.agent.identity import Identity

LOCK_WAIT_S = 60.0
_FOR = re.compile(rb"for: [0-9a-f]{64}")


class Purpose(StrEnum):
    """What a key that waits for its certificate was made for; the value is its file's name."""

    ENROL = "next-enrol.key"
    RENEW = "next-renew.key"


@dataclass(frozen=True, slots=True)
class IdentityFolder:
    """One agent's identity on disk. Reading needs no lock: the one file that counts is replaced in one step."""

    path: Path
    disk: Disk = field(default_factory=Disk)
    make_key: Callable[[], ec.EllipticCurvePrivateKey] = keys.new_key
    lock_wait_s: float = LOCK_WAIT_S

    @property
    def file(self) -> Path:
        """identity.pem, which also serves `ssl` and curl as certificate, key and CA file."""
        return self.path / "identity.pem"

    def find(self) -> Identity | None:
        """The identity, or None where there is none yet. Raises Unsafe, Damaged, DiskFailed."""
        try:
            disk.check_folder(self.path)
            raw = disk.read_private(self.file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _disk_failed(error) from error
        try:
            return identity.parse(raw)
        except Malformed as error:
            raise Damaged(
                f"{self.file}: {error.why}",
                hint=f"mv '{self.file}' '{self.file}.bad', then enrol anew with an invite from the operator",
            ) from error

    def read(self) -> Identity:
        """The identity. Raises NoIdentity, Unsafe, Damaged, DiskFailed."""
        found = self.find()
        if found is None:
            raise NoIdentity(
                f"expected an identity in {self.path}, found none", hint="lever agent enrol --bundle bootstrap.json"
            )
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among the processes that would change this folder. Raises Unsafe, Busy, DiskFailed."""
        try:
            disk.make_folder(self.path)
            with FileLock(self.path / "lock", timeout=self.lock_wait_s, mode=0o600):
                yield
        except Timeout as error:
            raise Busy(
                f"another lever process has been enrolling or renewing in {self.path} for {self.lock_wait_s:g} s",
                hint=f"find it: lsof '{self.path}/lock'",
            ) from error
        except OSError as error:
            raise _disk_failed(error) from error

    def next_key(self, purpose: Purpose, of: str) -> ec.EllipticCurvePrivateKey:
        """The key to ask a certificate for, on disk before anybody hears of it; under the lock only.

        of: digest (hex) of the ticket or certificate that the request goes with. Asked again for the same one,
        because an answer was lost, it is the same key: to the broker another key would be a fork.
        """
        path = self.path / purpose
        kept = self._kept_key(path, of)
        if kept is not None:
            return kept
        key = self.make_key()
        disk.replace(self.disk, path, f"for: {of}\n".encode("ascii") + keys.key_pem(key))
        return key

    def install(self, new: Identity) -> None:
        """Replace the identity in one step, then drop the keys that have served; under the lock only."""
        disk.replace(self.disk, self.file, identity.encode(new))
        for purpose in Purpose:
            self.disk.remove(self.path / purpose)

    def _kept_key(self, path: Path, of: str) -> ec.EllipticCurvePrivateKey | None:
        try:
            head, _, pem = disk.read_private(path).partition(b"\n")
        except FileNotFoundError:
            return None
        # Only a whole line may say that the key was for something else: half of one may have said anything.
        if _FOR.fullmatch(head) and head != f"for: {of}".encode("ascii"):
            return None
        try:
            return keys.read_key(pem, path.name)
        except Malformed as error:
            raise Damaged(
                f"{path}: {error.why}; it may have been sent to the broker already",
                hint=f"rm '{path}'; if the broker then refuses, ask the operator for a new invite",
            ) from error


def _disk_failed(error: OSError) -> DiskFailed:
    return DiskFailed(
        f"the identity folder can't be used: {error}",
        hint="mend that, then run the same command again: what was asked for is asked for again with the same key",
    )
