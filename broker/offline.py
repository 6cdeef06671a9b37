"""The rooms without doors: what `lever` may do to a state folder, a configuration or a key file with no daemon.

Most commands need the configuration alone. The other rooms are brought in by the function that needs them: to import
them all costs each command a quarter of a second (python -X importtime -c 'import broker.offline').
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from broker.config import Config, ConfigError, ToCommand, load
from broker.wire.names import Cn, Instance, Instant
from broker.wire.records import Record
from broker.wire.strict_json import JsonValue

if TYPE_CHECKING:
    from broker.config.expected_file import Case as Case
    from broker.journal.inspect import Report as Report
    from broker.rules.authority import Judgement as Judgement
    from broker.rules.authority.changes import Change as Change
    from broker.trust.diagnosis import Finding as Finding
    from broker.wire.head import Head
    from broker.wire.policy import Policy as Policy

__all__ = [
    "Config",
    "ConfigError",
    "ToCommand",
    "compare_policies",
    "copy_state",
    "create_state",
    "diagnose_signers",
    "judge_call",
    "load_config",
    "load_policy",
    "policy_warnings",
    "try_expected",
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


def verify_journal(state: Path, kept_head: bytes | None = None) -> Report:
    """Judge every byte of a state folder's journal, without its lock. Raises Fatal when there is none.

    kept_head: a signed head that was kept elsewhere, which the journal must hold. Raises Malformed, Untrusted for it.
    """
    from broker.journal import inspect

    return inspect.verify(state, _own_head(state, kept_head) if kept_head is not None else None)


def _own_head(state: Path, kept: bytes) -> Head:
    from broker.journal.state import CA, read_instance
    from broker.trust.authority import CertificateAuthority
    from broker.wire import head

    instance = read_instance(state)
    text, signature = head.split_signed(kept)
    CertificateAuthority.load(state / CA, instance).verify(text, signature)
    return head.parse(text, instance)


def copy_state(state: Path, to: Path) -> None:
    """A copy of a state folder, beside its broker. Raises Fatal."""
    from broker.journal import backup

    backup.copy(state, to)


def walk_journal(state: Path) -> Iterator[Record]:
    """The records in order. Raises Damaged where the journal is."""
    from broker.journal import inspect

    return inspect.walk(state)


def diagnose_signers(allowed_signers: Path, instance: Instance, now: Instant) -> list[Finding]:
    """Everything wrong with an allowed_signers file, as the daemon would find it."""
    import asyncio

    from broker.trust.operator import OperatorTrust

    return asyncio.run(OperatorTrust(allowed_signers, instance).diagnose(now))


def load_policy(path: Path) -> Policy:
    """The policy in a file. Raises ConfigError, with every problem."""
    from broker.config import policy_file

    return policy_file.load(path)


def policy_warnings(policy: Policy) -> list[str]:
    """What may not be meant, in a sentence each."""
    from broker.rules.authority import warnings

    return list(warnings.warnings(policy))


def compare_policies(old: Policy, new: Policy) -> list[Change]:
    """What changes from one to the other."""
    from broker.rules.authority import changes

    return list(changes.changes(old, new))


def judge_call(
    layers: Sequence[Policy], agent: Cn, tool: str, arguments: JsonValue, catalogue: Path | None = None
) -> Judgement:
    """What the daemon would make of a call, by the daemon's own function. Raises Malformed, ConfigError.

    layers: the instance's policy first; without a catalogue the tool is taken for one that takes any arguments.
    """
    from broker.config import expected_file
    from broker.rules.authority import expected

    tools = expected_file.load_catalogue(catalogue) if catalogue else None
    return expected.consider(tools, layers, agent, tool, arguments)


def try_expected(path: Path) -> Iterator[tuple[Case, Judgement, str]]:
    """Each case of a file of expected decisions, what came of it, and that in a word. Raises ConfigError, Malformed."""
    from broker.config import expected_file
    from broker.rules.authority import expected

    found = expected_file.load(path)
    for case in found.cases:
        judged = expected.consider(found.tools, found.layers, case.agent, case.tool, case.arguments)
        yield case, judged, expected.outcome(judged)
