"""The rooms without doors: what `lever` may do to a state folder, a configuration or a key file with no daemon.

Most commands need the configuration alone. The other rooms are brought in by the function that needs them: to import
them all costs each command a quarter of a second (python -X importtime -c 'import broker.offline').
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from broker.config import Config, ConfigError, ToCommand, load
from broker.wire.names import Instance, Instant
from broker.wire.records import Record

if TYPE_CHECKING:
    from broker.journal.inspect import Report as Report
    from broker.trust.diagnosis import Finding as Finding

__all__ = [
    "Config",
    "ConfigError",
    "ToCommand",
    "create_state",
    "diagnose_signers",
    "load_config",
    "verify_journal",
    "walk_journal",
]

load_config = load


def create_state(state: Path, instance: Instance, now: Instant) -> None:
    """A new state folder: certificate authority, first journal record. Raises Fatal where anything is already."""
    from broker.journal import create
    from broker.journal.disk import RealDisk
    from broker.journal.state import StateFolder
    from broker.trust.authority import CertificateAuthority

    with StateFolder.create(state, instance) as folder:
        authority = CertificateAuthority.create(folder.ca, instance, now)
        create.create(folder, RealDisk(), authority.digest, now)


def verify_journal(state: Path) -> Report:
    """Judge every byte of a state folder's journal, without its lock. Raises Fatal when there is none."""
    from broker.journal import inspect

    return inspect.verify(state)


def walk_journal(state: Path) -> Iterator[Record]:
    """The records in order. Raises Damaged where the journal is."""
    from broker.journal import inspect

    return inspect.walk(state)


def diagnose_signers(allowed_signers: Path, instance: Instance, now: Instant) -> list[Finding]:
    """Everything wrong with an allowed_signers file, as the daemon would find it."""
    import asyncio

    from broker.trust.operator import OperatorTrust

    return asyncio.run(OperatorTrust(allowed_signers, instance).diagnose(now))
