"""Checks of who may sign, and of the key that commands sign with."""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Instant, principal
from lever import signer
from lever.checks.finding import Finding
from lever.where import Place

if TYPE_CHECKING:
    from broker.offline import Config

_MARKS_OF_A_TREE = (".git", ".scion", "bootstrap.json")
_ABOUT = "signing key"


def signers(place: Place) -> Iterator[Finding]:
    """allowed_signers as the broker reads it."""
    from broker import offline

    about, config = "allowed_signers", place.config
    if config.operator is None:
        hint = f"add to {place.config_path}: operator: {{allowed_signers: allowed_signers}}"
        yield Finding(about, "warn", "directives are disabled: no operator block", hint)
        return
    path = config.operator.allowed_signers
    found = offline.diagnose_signers(path, config.instance, Instant(time.time_ns() // 1000))
    yield from (Finding(about, "fail" if one.blocks else "warn", one.text, one.hint) for one in found)
    if not found:
        yield Finding(about, "ok", f"{path}, two keys or more")


def signing_key(place: Place) -> Iterator[Finding]:
    """The key that commands sign with."""
    config = place.config
    if config.operator is None:
        return
    key = config.operator.signing_key
    if key is None:
        yield Finding(_ABOUT, "ok", "none configured: each command needs --key")
        return
    halves = _Halves(key.with_suffix("") if key.suffix == ".pub" else key)
    flaws = [*_private(place, halves), *_lost(halves), *_unlisted(config, halves)]
    yield from flaws
    if not any(flaw.level == "fail" for flaw in flaws):
        yield Finding(_ABOUT, "ok", halves.told())


@dataclass(frozen=True)
class _Halves:
    """A key's two files, which may both be missing."""

    private: Path

    @property
    def public(self) -> Path:
        return self.private.with_name(f"{self.private.name}.pub")

    def told(self) -> str:
        """What they are, where nothing is wrong."""
        if not self.private.exists():
            return f"the public half is here ({self.public}), and a local ssh-agent holds the key"
        kind = "with a passphrase" if signer.is_encrypted(self.private) else "without a passphrase, or in hardware"
        return f"{self.private}, {kind}"


def _private(place: Place, halves: _Halves) -> Iterator[Finding]:
    """What is wrong with the private half."""
    private, quoted = halves.private, shlex.quote(str(halves.private))
    try:
        mode = private.stat().st_mode
    except OSError as error:
        if not halves.public.is_file():
            words = (error.strerror or str(error)).lower()
            hint = f"ssh-keygen -t ed25519 -f {quoted} && {_listing(place.config, halves)}"
            yield Finding(_ABOUT, "fail", f"{private} can't be read: {words}", hint)
        return
    if not stat.S_ISREG(mode):
        hint = f"name a key file in {place.config_path}: operator.signing_key"
        yield Finding(_ABOUT, "fail", f"{private} is no file", hint)
    elif not os.access(private, os.R_OK):
        yield Finding(_ABOUT, "fail", f"{private} can't be read by this user", f"chown {os.geteuid()} {quoted}")
    elif mode & 0o077:
        text = f"{private} can be read by others (mode {mode & 0o777:04o})"
        yield Finding(_ABOUT, "fail", text, f"chmod 0600 {quoted}")
    elif tree := _tree_around(private):
        text = f"{private} lies in {tree}, which looks like a tree that agents work in: what is there may reach them"
        files = " ".join(shlex.quote(str(file)) for file in (private, halves.public) if file.exists())
        hint = f"mv {files} ~/.ssh/; then set in {place.config_path}: signing_key: ~/.ssh/{private.name}"
        yield Finding(_ABOUT, "warn", text, hint)


def _lost(halves: _Halves) -> Iterator[Finding]:
    """Is there a public half and nothing that can sign for it?"""
    if halves.private.exists() or not halves.public.is_file() or signer.agent_holds(halves.public):
        return
    quoted = shlex.quote(str(halves.private))
    text = f"{halves.private} is not there, and no local ssh-agent holds the key: nobody can sign with it here"
    hint = f"bring {quoted} back; or load it into an agent: ssh-add FILE; or sign with the spare: --key OTHER"
    yield Finding(_ABOUT, "fail", text, hint)


def _tree_around(path: Path) -> Path | None:
    """The nearest folder above that is a git work tree, a Scion project, or holds an agent's bundle."""
    above = path.resolve().parents
    return next((folder for folder in above if any(os.path.lexists(folder / mark) for mark in _MARKS_OF_A_TREE)), None)


def _unlisted(config: Config, halves: _Halves) -> Iterator[Finding]:
    """Is the key on no line of allowed_signers? Only said where both files can be read and no authority is in play."""
    path = config.operator.allowed_signers if config.operator else Path()
    if not (path.is_file() and halves.public.is_file()):
        return
    try:
        listed, words = path.read_text("utf-8", "replace"), halves.public.read_text("utf-8", "replace").split()
    except OSError:
        return
    lines = [line for line in listed.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(words) < 2 or not lines or any("cert-authority" in line or words[1] in line for line in lines):
        return
    yield Finding(_ABOUT, "fail", f"{halves.public} is not in {path}", _listing(config, halves))


def _listing(config: Config, halves: _Halves) -> str:
    """The command that puts the key into allowed_signers."""
    path = config.operator.allowed_signers if config.operator else Path("allowed_signers")
    public = shlex.quote(str(halves.public))
    line = f'{principal(config.instance)} namespaces="{NAMESPACE_DIRECTIVE},{NAMESPACE_ADMIN}"'
    return f"echo '{line}' \"$(cat {public})\" >> {shlex.quote(str(path))}"
