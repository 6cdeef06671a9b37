"""What the tests of the agent's side have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509

from broker.wire import bundle
from broker.wire.names import Instant
from lever.agent import enrolment
from lever.agent.disk import Disk
from lever.agent.enrolment import Done
from lever.agent.folder import IdentityFolder
from tests.fakes.fake_broker import FakeBroker

HOUR = 3600 * 1_000_000


def now(hours: float = 0) -> Instant:
    """The wall clock, so many hours from now."""
    since = datetime.now(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return Instant(since // timedelta(microseconds=1) + int(hours * HOUR))


def enrol(folder: IdentityFolder, broker: FakeBroker, cn: str = "worker-a", ticket: str | None = None) -> Done:
    """Enrol with a new invitation, or with this ticket."""
    return enrolment.enrol(folder, bundle.parse(broker.bundle(cn, ticket)), now=now())


class _Announcing(IdentityFolder):
    """Says when it has read the identity and is about to wait for the lock."""

    arrived: Any = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        type(self).arrived.set()
        with IdentityFolder.locked(self):
            yield


def renew_in_another_process(path: Path, force: bool, arrived: Any, results: Any) -> None:
    """The body of a process of its own. arrived: an event; results: a queue for the outcome."""
    _Announcing.arrived = arrived
    results.put(str(enrolment.renew(_Announcing(path), now=now(20), force=force).outcome))


class Crash(BaseException):
    """The power goes."""


class CrashingDisk(Disk):
    """A disk whose nth step is the last: it is not done, or done by half where a step can be."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.trace: list[str] = []

    def _step(self, what: str) -> bool:
        self.left -= 1
        self.trace.append(what)
        return self.left == 0

    def write(self, path: Path, content: bytes) -> None:
        if self._step(f"write {path.name}"):
            super().write(path, content[: len(content) // 2])
            raise Crash
        super().write(path, content)

    def rename(self, source: Path, target: Path) -> None:
        if self._step(f"rename {target.name}"):
            raise Crash
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        if self._step(f"remove {path.name}"):
            raise Crash
        super().remove(path)

    def sync_folder(self, folder: Path) -> None:
        if self._step("sync_folder"):
            raise Crash
        super().sync_folder(folder)


def keys_asked_for(broker: FakeBroker) -> set[str]:
    """The public keys of all certificate requests that reached the broker."""
    return {
        str(x509.load_pem_x509_csr(call.body["csr"].encode()).public_key().public_numbers())  # type: ignore[union-attr]
        for call in broker.calls
    }


def content(folder: IdentityFolder) -> bytes | None:
    """The identity's exact bytes; None where there is none."""
    return folder.file.read_bytes() if folder.file.exists() else None


def enrol_or_renew(folder: IdentityFolder, broker: FakeBroker) -> tuple[Callable[[], Done], ...]:
    """Both ways to a new certificate, each to be tried."""
    return (lambda: enrol(folder, broker), lambda: enrolment.renew(folder, now=now(), force=True))
