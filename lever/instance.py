"""A new instance's files: made beside their places, then moved into them, so that a failure leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Instance, Instant, principal
from lever import public_key, where
from lever.exits import CliError, Exit
from lever.public_key import PublicKey

if TYPE_CHECKING:
    from broker.offline import Config

CONFIG, SIGNERS, STATE, KEYS = where.NAME, "allowed_signers", "state", "keys"
_MADE_KEYS = ("operator-1", "operator-2")
_PLAIN = re.compile(r"[A-Za-z/~][A-Za-z0-9/._~-]*|[A-Za-z0-9.-]+:[0-9]+")
_YAML_WORDS = frozenset(("true", "false", "null"))

_TEMPLATE = """\
# A Lever instance. Every key is explained in docs/formats/config.md.
# What is commented out shows the default, or an example. Paths are relative to
# this file's folder. The broker reads it when it starts.
instance: {instance}

# The agents' door: TLS with client certificates.
listen: {listen}
# How agents reach it, if not by the listen address: the name in the server's
# certificate and in each bundle.
{advertise}
# The journal, the certificate authority, the operator socket. For the broker's
# user alone.
state: {state}

# Who may instruct. Without this block there are no directives.
operator:
  allowed_signers: {signers}
  # What the command line signs with unless it is told --key.
  {signing_key}
  # directive_expiry: 10m
  # directive_expiry_max: 24h
  # Users beside the broker's own who may open the socket.
  # uids: []
  # socket: {state}/operator.sock

# Tools that a directive may name, beside those of the servers below.
# tools: {{files: [read_file, write_file]}}

# MCP servers that the broker stands in front of: it calls their tools for
# agents, as the policy says (lever policy apply) and of what you accepted (lever
# tools accept). What is neither in read nor in write is not there for them: a
# program outside /usr has to be in read, with its interpreter.
# servers:
#   git:
#     command: ["/opt/git-tools/bin/mcp-server-git"]
#     sandbox: {{read: [/opt/git-tools], write: [/srv/project]}}

# How agents are told that a directive waits. The inbox is built in; a command
# is started without a shell.
# agents:
#   worker-a:
#     deliver:
#       - inbox
#       - command: ["tmux", "send-keys", "-t", "{{agent}}", "{{text}}", "Enter"]

# limits: {{consume_per_minute: 30, ticket_s: 600}}
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a new instance is to be. keys: public key files; or make_keys, for two new ones."""

    name: Instance
    keys: tuple[Path, ...]
    make_keys: bool
    listen: str
    advertise: str | None


@dataclass(frozen=True, slots=True)
class Made:
    """What is there now. signing_key: as the configuration has it, or empty; fingerprints: of who may sign."""

    config: Path
    allowed_signers: Path
    state: Path
    signing_key: str
    fingerprints: tuple[str, ...]


def make(folder: Path, wish: Wish) -> Made:
    """Make an instance in a folder that holds none. Raises CliError, and then nothing has changed."""
    places = (CONFIG, SIGNERS, STATE, *((KEYS,) if wish.make_keys else ()))
    _must_be_free(folder, places)
    given = [public_key.read(path) for path in wish.keys]
    _must_differ(given)
    is_new = not folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".lever-init-", dir=folder) as staged:
            made = _stage(Path(staged), folder, wish, given)
            _move(Path(staged), folder, places)
        _sync(folder)
    except BaseException as error:
        if is_new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if isinstance(error, OSError):
            raise _unmade(folder, error) from error
        raise
    return made


def _stage(staged: Path, folder: Path, wish: Wish, given: list[PublicKey]) -> Made:
    from broker import offline

    if wish.make_keys:
        keys = _make_keys(staged / KEYS, wish.name)
        signing_key = f"{KEYS}/{_MADE_KEYS[0]}"
    else:
        keys = given
        signing_key = next((key.signer for key in given if key.signer), "")
    _write(staged / SIGNERS, _signers(wish.name, keys))
    _write(staged / CONFIG, _config(wish, signing_key))
    config = _checked(staged / CONFIG)
    offline.create_state(staged / STATE, config.instance, _now())
    fingerprints = tuple(key.fingerprint for key in keys)
    return Made(folder / CONFIG, folder / SIGNERS, folder / STATE, signing_key, fingerprints)


def _checked(path: Path) -> Config:
    """The configuration as the broker will read it: what it does not like of the options is told before all else."""
    try:
        return where.load(path)
    except CliError as error:
        words = error.text.partition(": ")[2] or error.text
        raise CliError(f"--listen or --advertise: {words}", hint="--listen 127.0.0.1:8443") from error


def _must_be_free(folder: Path, places: tuple[str, ...]) -> None:
    if folder.exists() and not folder.is_dir():
        raise CliError(f"expected a folder, found a file: {folder}", hint="lever init DIR --name NAME")
    taken = [folder / name for name in places if os.path.lexists(folder / name)]
    if taken:
        raise CliError(
            f"expected no instance in {folder} yet, found {', '.join(map(str, taken))}; nothing was changed",
            hint="name another folder: lever init DIR --name NAME",
            exit=Exit.REFUSED,
        )


def _must_differ(keys: list[PublicKey]) -> None:
    seen = [key.fingerprint for key in keys]
    for twice in {one for one in seen if seen.count(one) > 1}:
        raise CliError(f"expected different keys, found {twice} twice", hint="give each --key once")


def _make_keys(folder: Path, name: Instance) -> list[PublicKey]:
    folder.mkdir(mode=0o700)
    keys = [public_key.make(folder / number, f"{number}@{name}") for number in _MADE_KEYS]
    for path in (*folder.iterdir(), folder):  # ssh-keygen leaves it to chance when they reach the disk
        _sync(path)
    return keys


def _signers(name: Instance, keys: list[PublicKey]) -> str:
    namespaces = f'namespaces="{NAMESPACE_DIRECTIVE},{NAMESPACE_ADMIN}"'
    head = (
        f"# Who may sign for {name}: one line a key, two keys or more. The broker reads this file for each signature.\n"
        "# After an edit: lever directive selftest --key KEY. The format is in docs/formats/allowed_signers.md.\n"
    )
    return head + "".join(f"{principal(name)} {namespaces} {key.line}\n" for key in keys)


def _config(wish: Wish, signing_key: str) -> str:
    return _TEMPLATE.format(
        instance=_yaml(wish.name),
        listen=_yaml(wish.listen),
        advertise=f"advertise: {_yaml(wish.advertise)}\n" if wish.advertise else "# advertise: broker.example:8443\n",
        state=STATE,
        signers=SIGNERS,
        signing_key=f"signing_key: {_yaml(signing_key)}" if signing_key else "# signing_key: keys/operator-1",
    )


def _yaml(text: str) -> str:
    """A text as YAML reads it back: quoted unless it plainly is one."""
    return text if _PLAIN.fullmatch(text) and text not in _YAML_WORDS else json.dumps(text)


def _write(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        path.chmod(0o644)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _move(staged: Path, folder: Path, names: tuple[str, ...]) -> None:
    """Move into place, where nothing may have appeared meanwhile; all of it or nothing."""
    moved: list[str] = []
    try:
        # The configuration, which is the first, last: a folder without one is no instance yet.
        for name in reversed(names):
            source, target = staged / name, folder / name
            if source.is_dir():
                target.mkdir(mode=0o700)
                source.rename(target)
            else:
                os.link(source, target)
                source.unlink()
            moved.append(name)
    except OSError:
        for name in moved:
            (folder / name).rename(staged / name)
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unmade(folder: Path, error: OSError) -> CliError:
    words = (error.strerror or str(error)).lower()
    return CliError(f"no instance was made in {folder}: {words}", hint=f"ls -la {folder}", exit=Exit.UNEXPECTED)


def _now() -> Instant:
    return Instant(time.time_ns() // 1000)
