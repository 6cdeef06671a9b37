"""The rooms without doors: what `lever` may do to a state folder, a configuration or a key file with no daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from broker.config import Config, ConfigError, ToCommand, load
from broker.journal import create, inspect
from broker.journal.disk import RealDisk
from broker.journal.inspect import Report
from broker.journal.state import StateFolder
from broker.trust.authority import CertificateAuthority
from broker.trust.diagnosis import Finding
from broker.trust.operator import OperatorTrust
from broker.wire.names import Instance, Instant
from broker.wire.records import Record

__all__ = [
    "Config",
    "ConfigError",
    "Finding",
    "Report",
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
    with StateFolder.create(state, instance) as folder:
        authority = CertificateAuthority.create(folder.ca, instance, now)
        create.create(folder, RealDisk(), authority.digest, now)


def verify_journal(state: Path) -> Report:
    """Judge every byte of a state folder's journal, without its lock. Raises Fatal when there is none."""
    return inspect.verify(state)


def walk_journal(state: Path) -> Iterator[Record]:
    """The records in order. Raises Fatal where the journal is damaged."""
    return inspect.walk(state)


def diagnose_signers(allowed_signers: Path, instance: Instance, now: Instant) -> list[Finding]:
    """Everything wrong with an allowed_signers file, as the daemon would find it."""
    return asyncio.run(OperatorTrust(allowed_signers, instance).diagnose(now))
