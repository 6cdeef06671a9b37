"""Why operator keys do not work, each misconfiguration with a name, a sentence and a way out."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from broker.errors import Unavailable, Untrusted
from broker.trust.signer_lines import OPTIONS, SignerLine, SkippedLine
from broker.trust.signers_file import SignersFile, SignersUnusable
from broker.wire.escape import escaped
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Digest, Instant
from broker.wire.times import SECOND, show

CODES = (
    "signers_missing",
    "signers_unreadable",
    "signers_not_a_file",
    "signers_owner",
    "signers_writable",
    "signers_too_large",
    "signers_empty",
    "line_skipped",
    "no_key_for_principal",
    "wildcard_principal",
    "wrong_namespace",
    "key_expired",
    "key_not_yet_valid",
    "key_not_accepted",
    "single_key",
    "ssh_keygen_unavailable",
)
"""Every `Finding.code`; the first six are also those of SignersUnusable."""

_FILE_AND_LINE = re.compile(r"^/dev/fd/\d+:(\d+): ")
_WRITTEN_ANEW = ("signers_missing", "signers_not_a_file")
_UNHELPFUL = re.compile(r"Could not verify signature|sig_verify: ")
_MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with the operator's keys. blocks: whether some signature is refused because of it."""

    code: str
    text: str
    hint: str
    blocks: bool


def add_a_key(principal: str, path: Path) -> str:
    """The command that writes a key's line."""
    line = f'{principal} namespaces="{NAMESPACE_DIRECTIVE},{NAMESPACE_ADMIN}"'
    return f"echo '{line}' \"$(cat KEY.pub)\" >> {shlex.quote(str(path))}"


def unusable(error: SignersUnusable, add: str) -> Finding:
    """A file that can't be read or must not be believed, as a finding. add: the command that writes a key's line."""
    steps = [error.hint, add if error.code in _WRITTEN_ANEW else ""]
    return Finding(error.code, error.what, " && ".join(filter(None, steps)), blocks=True)


def not_accepted(error: Untrusted) -> Finding:
    """A signature that was refused, as a finding."""
    hint = "sign with a key that allowed_signers holds: ssh-keygen -l -f KEY.pub shows its fingerprint"
    return Finding("key_not_accepted", error.why, hint, blocks=True)


def unavailable(error: Unavailable) -> Finding:
    """An ssh-keygen that can't be asked, as a finding."""
    hint = "install OpenSSH 9.1 or newer: ssh-keygen must be on the broker's PATH"
    return Finding("ssh_keygen_unavailable", error.what, hint, blocks=True)


def examine(file: SignersFile, principal: str, namespaces: tuple[str, ...], now: Instant, add: str) -> list[Finding]:
    """What is wrong with the file as it stands, whatever is signed: no key of it is tried.

    add: the command that writes a key's line.
    """
    if not file.lines:
        return [Finding("signers_empty", "no line of it names a key", add, blocks=True)]
    findings = [_skipped(line) for line in file.lines if isinstance(line, SkippedLine)]
    ours = [line for line in file.lines if isinstance(line, SignerLine) and line.is_for(principal)]
    findings += [_wildcard(line, principal) for line in ours if principal not in line.principals.split(",")]
    if not ours:
        return [*findings, _nobody(file, principal)]
    for line in ours:
        findings += _dates(line, now)
        findings += _namespaces(line, namespaces)
    if len({line.key_digest for line in ours}) == 1:
        text = f"{principal} has one key only: losing it locks the operator out"
        findings.append(Finding("single_key", text, add, blocks=False))
    return findings


def explain(file: SignersFile, principal: str, key_digest: Digest, stderr: bytes) -> str:
    """Why ssh-keygen said no, for the log and the operator: what it wrote, and what the file holds for this key."""
    lines = [line for line in file.lines if isinstance(line, SignerLine) and line.key_digest == key_digest]
    said = [_readable(line) for line in stderr.decode("utf-8", "replace").splitlines()]
    reasons = [line for line in said if line and not _UNHELPFUL.search(line)]
    if not lines:
        reasons.insert(0, "the signing key is not in allowed_signers")
    elif not any(line.is_for(principal) for line in lines):
        where = ", ".join(f"line {line.number}" for line in lines)
        reasons.insert(0, f"the signing key does not stand under {principal} but under another principal ({where})")
    return "; ".join(reasons or ["ssh-keygen did not accept the signature"])[:_MAX_TEXT]


def _readable(line: str) -> str:
    return escaped(_FILE_AND_LINE.sub(r"allowed_signers line \1: ", line), _MAX_TEXT)


def _skipped(line: SkippedLine) -> Finding:
    text = f"line {line.number} is skipped: {line.why}"
    hint = f"delete line {line.number}, or mend it: principal, options (of {', '.join(OPTIONS)}), key type, key"
    return Finding("line_skipped", text, hint, blocks=True)


def _wildcard(line: SignerLine, principal: str) -> Finding:
    text = f'line {line.number}: the principal "{escaped(line.principals)}" is a pattern that also matches {principal}'
    return Finding("wildcard_principal", text, f"begin line {line.number} with {principal} instead", blocks=False)


def _nobody(file: SignersFile, principal: str) -> Finding:
    found = sorted({line.principals for line in file.lines if isinstance(line, SignerLine)})
    text = f"no key stands under {principal}; the file has: {escaped(', '.join(found)) or 'no key at all'}"
    return Finding(
        "no_key_for_principal", text[:_MAX_TEXT], f"begin the line of each of your keys with {principal}", True
    )


def _dates(line: SignerLine, now: Instant) -> list[Finding]:
    now_s = now // SECOND
    if line.valid_before_s is not None and now_s > line.valid_before_s:
        text = f"line {line.number}: {line.fingerprint} expired at {_shown(line.valid_before_s)}"
        return [
            Finding(
                "key_expired", text, f"in line {line.number} set a later valid-before, or delete that line", blocks=True
            )
        ]
    if line.valid_after_s is not None and now_s < line.valid_after_s:
        text = f"line {line.number}: {line.fingerprint} is not valid before {_shown(line.valid_after_s)}"
        return [
            Finding(
                "key_not_yet_valid", text, f"wait, or in line {line.number} set an earlier valid-after", blocks=True
            )
        ]
    return []


def _shown(at_s: int) -> str:
    return show(Instant(at_s * SECOND))


def _namespaces(line: SignerLine, wanted: tuple[str, ...]) -> list[Finding]:
    missing = [namespace for namespace in wanted if not line.allows(namespace)]
    if not missing:
        return []
    text = f'line {line.number}: namespaces="{line.namespaces}" leaves out {" and ".join(missing)}'
    hint = f'write in line {line.number}: namespaces="{",".join(wanted)}"'
    return [Finding("wrong_namespace", text, hint, blocks=True)]
