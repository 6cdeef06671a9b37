"""What `lever doctor` looks at: each check says how one thing is, and how to mend it."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from broker.errors import BrokerError
from broker.wire.names import Instant
from lever import forwarded, signer
from lever.exits import CliError, failure_of
from lever.where import Place

if TYPE_CHECKING:
    from broker.offline import Config

_NEEDED = (9, 1)
"""OpenSSH: ssh-keygen takes `-Overify-time` in UTC since then."""
_MARKS_OF_A_TREE = (".git", ".scion", "bootstrap.json")
_INSTALL = "install OpenSSH 9.1 or newer (apt-get install openssh-client; brew install openssh)"


@dataclass(frozen=True, slots=True)
class Finding:
    """How one thing is. hint: the command that mends it, empty where nothing has to be mended."""

    about: str
    level: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


def every(place: Place) -> Iterator[Finding]:
    """All checks, in the order in which one rests on the other."""
    yield from ssh_keygen()
    yield from ssh_agent()
    try:
        config = place.config
    except CliError as error:
        yield from (Finding("configuration", "fail", text, error.hint) for text in (error.text, *error.more))
        return
    yield Finding("configuration", "ok", f"{place.config_path}, instance {config.instance}")
    checks: tuple[Callable[[Config], Iterator[Finding]], ...] = (signers, signing_key, state_folder, journal)
    for check in checks:
        yield from check(config)
    yield from broker(place)


def ssh_keygen() -> Iterator[Finding]:
    """Is ssh-keygen there, and new enough for the broker?"""
    try:
        subprocess.run(["ssh-keygen", "-?"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        said = subprocess.run(["ssh", "-V"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        yield Finding("ssh-keygen", "fail", f"can't be run: {error.strerror} ({error.filename})", _INSTALL)
        return
    words = (said.stderr + said.stdout).strip().partition(",")[0]
    found = re.match(r"OpenSSH_(?:for_Windows_)?(\d+)\.(\d+)", words)
    if not found:
        yield Finding("ssh-keygen", "warn", f"of unknown version: {words[:60]!r}", "lever directive selftest")
    elif (int(found[1]), int(found[2])) < _NEEDED:
        yield Finding("ssh-keygen", "fail", f"{words} is too old, expected OpenSSH 9.1 or newer", _INSTALL)
    else:
        yield Finding("ssh-keygen", "ok", words)


def ssh_agent() -> Iterator[Finding]:
    """Would a signature come from another machine?"""
    socket = os.environ.get("SSH_AUTH_SOCK")
    if not socket:
        return
    try:
        why = forwarded.why_forwarded(Path(socket), os.environ)
    except forwarded.NoAgent as error:
        yield Finding("ssh-agent", "warn", f"nothing answers on {socket}: {error}", "unset SSH_AUTH_SOCK")
        return
    if why:
        text = f"it is forwarded to this host ({why}): lever does not sign through it, and this host could"
        yield Finding("ssh-agent", "warn", text, "log in without it: ssh -a HOST")
    else:
        yield Finding("ssh-agent", "ok", f"local, as far as can be told: {socket}")


def signers(config: Config) -> Iterator[Finding]:
    """allowed_signers as the broker reads it."""
    from broker import offline

    about = "allowed_signers"
    if config.operator is None:
        yield Finding(
            about, "warn", "directives are disabled: no operator block", "see docs/formats/config.md, operator"
        )
        return
    path = config.operator.allowed_signers
    found = offline.diagnose_signers(path, config.instance, Instant(time.time_ns() // 1000))
    yield from (Finding(about, "fail" if one.blocks else "warn", one.text, one.hint) for one in found)
    if not found:
        yield Finding(about, "ok", f"{path}, two keys or more")


def signing_key(config: Config) -> Iterator[Finding]:
    """The key that commands sign with."""
    about = "signing key"
    if config.operator is None:
        return
    key = config.operator.signing_key
    if key is None:
        yield Finding(about, "ok", "none configured: each command needs --key")
        return
    private = key.with_suffix("") if key.suffix == ".pub" else key
    try:
        mode = private.stat().st_mode
    except OSError as error:
        public = private.with_name(f"{private.name}.pub")
        if public.is_file():
            yield Finding(about, "ok", f"only the public half is here ({public}): a local ssh-agent must hold the key")
        else:
            words = (error.strerror or str(error)).lower()
            yield Finding(about, "fail", f"{private} can't be read: {words}", f"ssh-keygen -t ed25519 -f {private}")
        return
    yield from _private_key(about, private, mode)


def _private_key(about: str, private: Path, mode: int) -> Iterator[Finding]:
    if not stat.S_ISREG(mode) or not os.access(private, os.R_OK):
        yield Finding(about, "fail", f"{private} is no file that this user can read", f"ls -l {private}")
        return
    if mode & 0o077:
        yield Finding(
            about, "fail", f"{private} can be read by others (mode {mode & 0o777:04o})", f"chmod 0600 {private}"
        )
        return
    if tree := _tree_around(private):
        text = f"{private} lies in {tree}, which looks like a tree that agents work in: what is there may reach them"
        yield Finding(about, "warn", text, f"mv {private} {private}.pub ~/.ssh/, and set signing_key")
    kind = "with a passphrase" if signer.is_encrypted(private) else "without a passphrase, or in hardware"
    yield Finding(about, "ok", f"{private}, {kind}")


def _tree_around(path: Path) -> Path | None:
    """The nearest folder above that is a git work tree, a Scion project, or holds an agent's bundle."""
    above = path.resolve().parents
    return next((folder for folder in above if any(os.path.lexists(folder / mark) for mark in _MARKS_OF_A_TREE)), None)


def state_folder(config: Config) -> Iterator[Finding]:
    """The state folder: there, and for its owner alone."""
    about, path = "state folder", config.state
    try:
        found = path.stat()
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        yield Finding(
            about, "fail", f"{path}: {words}", "restore it from a backup, or lever init a new instance elsewhere"
        )
        return
    if found.st_mode & 0o077:
        yield Finding(
            about, "fail", f"{path} is open to others (mode {found.st_mode & 0o777:04o})", f"chmod 0700 {path}"
        )
    elif found.st_uid != os.geteuid():
        yield Finding(
            about, "warn", f"{path} belongs to uid {found.st_uid}, this is uid {os.geteuid()}", "run this as that user"
        )
    else:
        yield Finding(about, "ok", f"{path}, for its owner alone")


def journal(config: Config) -> Iterator[Finding]:
    """The journal, every byte of it."""
    from broker import offline

    try:
        report = offline.verify_journal(config.state)
    except BrokerError as error:
        told = failure_of(error)
        yield Finding("journal", "fail", " ".join(told.lines), told.hint)
        return
    if not report.whole:
        count, first = len(report.problems), report.problems[0]
        yield Finding("journal", "fail", f"damaged in {count} place(s); the first: {first}", "lever journal verify")
        return
    torn = "; the last one is cut short, which the broker's next start mends" if report.problems else ""
    yield Finding("journal", "ok", f"whole, {report.records} records{torn}")


def broker(place: Place) -> Iterator[Finding]:
    """Does a broker of this instance answer, and does it go with the clock?"""
    from lever.line import Line

    try:
        line = Line(place.socket)
        line.meet(place.instance)
        health = line.get("/health")
    except CliError as error:
        yield Finding("broker", "fail", error.text, error.hint)
        return
    yield Finding("broker", "ok", f"version {health.get('version')}, process {health.get('pid')}, on {place.socket}")
    if health.get("clock_behind"):
        text = "the broker's journal knows a later time than this clock: it decides nothing until then"
        yield Finding("clock", "fail", text, "set the clock right: timedatectl set-ntp true")
    else:
        yield Finding("clock", "ok", "not behind the journal")
