"""The rooms without doors: what `lever` may do to a state folder, a configuration or a key file with no daemon.

Most commands need the configuration alone. The other rooms are brought in by the function that needs them: to import
them all costs each command a quarter of a second (python -X importtime -c 'import broker.offline').
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.config import Config, ConfigError, ToCommand, load
from broker.errors import Malformed, Untrusted
from broker.wire import sshsig
from broker.wire.names import Cn, Instance, Instant
from broker.wire.records import PayloadRef, Record
from broker.wire.strict_json import JsonValue

if TYPE_CHECKING:
    from broker.config.expected_file import Case as Case
    from broker.journal.inspect import Report as Report
    from broker.rules.authority import Judgement as Judgement
    from broker.rules.authority.changes import Change as Change
    from broker.rules.authority.receipts import Receipt as Receipt
    from broker.rules.authority.receipts import Receipts as Receipts
    from broker.rules.authority.receipts import Signature
    from broker.rules.authority.rejudging import Rejudging
    from broker.trust.diagnosis import Finding as Finding
    from broker.trust.operator import OperatorTrust
    from broker.wire.catalogue import PinnedTool
    from broker.wire.head import Head
    from broker.wire.policy import Policy as Policy

__all__ = [
    "Config",
    "ConfigError",
    "Examined",
    "ToCommand",
    "check_tool",
    "compare_policies",
    "copy_state",
    "create_state",
    "diagnose_signers",
    "entries_of_no_tool",
    "exact_bytes",
    "examine_receipts",
    "judge_call",
    "load_config",
    "load_policy",
    "policy_warnings",
    "read_receipts",
    "sandbox_flaw",
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


def entries_of_no_tool(policy: Policy, accepted: Iterable[str]) -> list[str]:
    """The entries by which something could be called, and which name none of the accepted tools."""
    from broker.rules.authority import tiers

    names = {*accepted}
    folded = [name.casefold() for name in names]
    asked = [entry for entry in policy.approval_required if not any(tiers.matches(entry, name) for name in folded)]
    return [*sorted(policy.allowed - names), *sorted(asked)]


def compare_policies(old: Policy, new: Policy) -> list[Change]:
    """What changes from one to the other."""
    from broker.rules.authority import changes

    return list(changes.changes(old, new))


def judge_call(
    layers: Sequence[Policy],
    agent: Cn,
    tool: str,
    arguments: JsonValue,
    catalogue: Path | Mapping[str, PinnedTool | str] | None = None,
) -> Judgement:
    """What the daemon would make of a call, by the daemon's own function. Raises Malformed, ConfigError.

    layers: the instance's policy first; catalogue: the accepted tools (of one that is shut, why), or a file of them;
    without one the tool is taken for one that takes any arguments.
    """
    from broker.config import expected_file
    from broker.rules.authority import expected

    tools: Mapping[str, PinnedTool | str] | None
    tools = expected_file.load_catalogue(catalogue) if isinstance(catalogue, Path) else catalogue
    return expected.consider(tools, layers, agent, tool, arguments)


def check_tool(tool: PinnedTool) -> None:
    """Could the daemon judge calls of this tool by its own schema? Raises Malformed."""
    from broker.rules.authority import schema

    schema.schema_of(tool)


def try_expected(path: Path) -> Iterator[tuple[Case, Judgement, str]]:
    """Each case of a file of expected decisions, what came of it, and that in a word. Raises ConfigError, Malformed."""
    from broker.config import expected_file
    from broker.rules.authority import expected

    found = expected_file.load(path)
    for case in found.cases:
        judged = expected.consider(found.tools, found.layers, case.agent, case.tool, case.arguments)
        yield case, judged, expected.outcome(judged)


def read_receipts(state: Path) -> Receipts:
    """Every receipt that a state folder's journal holds. Raises Damaged where the journal is."""
    from broker.rules.authority import receipts

    return receipts.read(walk_journal(state))


def exact_bytes(state: Path, found: Receipts, ref: PayloadRef, kept: Mapping[bytes, bytes]) -> bytes | None:
    """The bytes of a reference; None once they are past their retention. Raises Damaged.

    kept: bytes that were kept elsewhere, by SHA-256.
    """
    from broker.journal import payloads, segments
    from broker.journal.disk import RealDisk
    from broker.journal.state import PAYLOADS

    file = state / PAYLOADS / segments.name(ref.segment)
    if ref.segment <= found.dropped and not file.exists():  # one that holds something in force stays
        return kept.get(ref.digest)
    return payloads.read_payload(RealDisk(), state, ref)


class Examined(NamedTuple):
    """What came of checking a receipt. problems: what does not hold; gone: whose exact bytes are no longer there.

    gestures: of each signature that it rests on, what the key says that its holder did: of good signatures alone.
    """

    receipt: Receipt
    problems: tuple[str, ...]
    gone: tuple[str, ...]
    gestures: Mapping[str, str]


class _Checked(NamedTuple):
    """A signature that was checked. raw: what it signs, None where bytes are gone; flaw: why it is not good."""

    raw: bytes | None
    flaw: str = ""
    gesture: str = ""


def examine_receipts(
    state: Path, found: Receipts, wanted: Sequence[Receipt], signers: Path, kept: Mapping[bytes, bytes]
) -> list[Examined]:
    """Check receipts again: each signature by ssh-keygen over the stored bytes, at the time it counted, that what was
    signed is what was recorded, and that the call is what it is judged to be. kept: bytes that were kept elsewhere, by
    SHA-256. Raises Unavailable, Damaged.
    """
    import asyncio

    from broker.rules.authority.rejudging import Rejudging

    signatures = {signature for receipt in wanted for _, signature, _ in _signatures(receipt)}
    checked = asyncio.run(_all_checked(state, found, signatures, signers, kept))
    rejudging = Rejudging(lambda ref: exact_bytes(state, found, ref, kept))
    return [_examined(receipt, checked, rejudging) for receipt in wanted]


async def _all_checked(
    state: Path, found: Receipts, signatures: Iterable[Signature], signers: Path, kept: Mapping[bytes, bytes]
) -> dict[Signature, _Checked]:
    """Each once, however many receipts rest on it."""
    import asyncio

    from broker.journal.state import read_instance
    from broker.trust.operator import OperatorTrust

    trust = OperatorTrust(signers, read_instance(state))

    async def check(signature: Signature) -> tuple[Signature, _Checked]:
        raw, armored = (exact_bytes(state, found, ref, kept) for ref in (signature.raw, signature.armored))
        return signature, await _checked(trust, signature, raw, armored)

    try:
        return dict(await asyncio.gather(*map(check, signatures)))
    finally:
        await trust.close()


async def _checked(trust: OperatorTrust, signature: Signature, raw: bytes | None, armored: bytes | None) -> _Checked:
    if raw is None or armored is None:
        return _Checked(None)
    try:
        verified = await trust.verify(raw, armored, signature.namespace, signature.at)
    except Untrusted as error:
        return _Checked(raw, str(error))
    if verified.fingerprint != signature.fingerprint:
        return _Checked(raw, "another key signed than was recorded")
    return _Checked(raw, gesture=sshsig.parse(armored).gesture)


def _examined(receipt: Receipt, checked: Mapping[Signature, _Checked], rejudging: Rejudging) -> Examined:
    problems, gone, gestures = list(receipt.flaws), [], {}
    for name, signature, unlike in _signatures(receipt):
        raw, flaw, gesture = checked[signature]
        if raw is None:
            gone.append(name)
            gestures[name] = f"{sshsig.UNTOLD} any more: its bytes were dropped"
        else:
            flaws = (flaw,) if flaw else _flaws(unlike, raw)
            problems += [f"{name}: {one}" for one in flaws]
            gestures[name] = f"{sshsig.UNTOLD}: {flaws[0]}" if flaws else gesture
    others, missing = rejudging.again(receipt)
    return Examined(receipt, (*problems, *others), tuple(dict.fromkeys((*gone, *missing))), gestures)


def _flaws(unlike: Callable[[bytes], Sequence[str]], raw: bytes) -> Sequence[str]:
    """In what a good signature signs."""
    try:
        return unlike(raw)
    except Malformed as error:
        return (str(error),)


def _signatures(receipt: Receipt) -> Iterator[tuple[str, Signature, Callable[[bytes], Sequence[str]]]]:
    """Everything signed that a receipt rests on, and what would be wrong with what it says."""
    from broker.rules.authority import signed_words

    if receipt.signature:
        yield receipt.consent[0], receipt.signature, lambda raw: tuple(signed_words.unlike(receipt, raw))
    for one in receipt.policies:
        if one.signature:
            orders = partial(signed_words.orders, applied=one)
            yield one.name, one.signature, partial(_otherwise, orders, "puts something else in force")
    if (accepted := receipt.accepted) and accepted.signature:
        accepts = partial(signed_words.accepts, accepted=accepted)
        yield accepted.name, accepted.signature, partial(_otherwise, accepts, "accepts something else")
    if receipt.noted and receipt.noted_by:
        notes = partial(signed_words.notes, noted=receipt.noted)
        yield "note", receipt.noted_by, partial(_otherwise, notes, "is another note")


def sandbox_flaw(config: Config, server: str, environ: Mapping[str, str]) -> str:
    """Why a server's sandbox would not be made, or its command not be run in it; else nothing."""
    from broker.effects.tool_servers import NotSent, sandbox

    found = config.servers[server]
    if not (found.command and found.sandbox):
        return ""
    try:
        sandbox.confined(found.command, found.sandbox, environ, config.own_files)
    except NotSent as error:
        return error.what
    missing = sandbox.unseen(found.command, found.sandbox, environ)
    return f"its sandbox does not show {missing}, which its command needs, or it is not there" if missing else ""


def _otherwise(fits: Callable[[bytes], bool], what: str, raw: bytes) -> Sequence[str]:
    return () if fits(raw) else (f"what was signed {what}",)
