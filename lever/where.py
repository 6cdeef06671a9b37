"""Where a command works: which configuration, instance, socket and key. Nothing is looked for until it is needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from broker.wire.names import Instance
from lever.exits import CliError, Exit

if TYPE_CHECKING:
    from broker.offline import Config

NAME = "lever.yaml"
VARIABLE = "LEVER_CONFIG"
DEFAULT_EXPIRY_S = 600


@dataclass(frozen=True)
class Place:
    """What the command line says about where; the rest is read from the configuration.

    named: the configuration by --config or as the trailing argument; the others by options of their names.
    """

    named: Path | None = None
    socket_named: Path | None = None
    key_named: Path | None = None
    instance_named: Instance | None = None

    @classmethod
    def of(cls, option: Path | None, trailing: Path | None) -> Place:
        """From --config and the trailing CONFIG: one of them, or none."""
        if option and trailing and option != trailing:
            raise CliError(
                f"expected one configuration, found two: --config {option}, and {trailing} at the end",
                hint=f"leave one out, say: --config {option}",
            )
        return cls(option or trailing)

    def at(self, socket: Path | None) -> Place:
        """The same, with this socket."""
        return replace(self, socket_named=socket)

    def signing(self, key: Path | None, instance: Instance | None) -> Place:
        """The same, with this key and this instance."""
        return replace(self, key_named=key, instance_named=instance)

    @cached_property
    def config_path(self) -> Path:
        """The configuration's file. Raises CliError when there is none."""
        found = self._config_path()
        if found is None:
            raise CliError(
                f"expected a {NAME} in this folder or one above it, found none",
                hint=f"lever init --name NAME writes one; --config FILE or ${VARIABLE} name one that is elsewhere",
            )
        return found

    @cached_property
    def config(self) -> Config:
        """The configuration. Raises CliError, with a line for each thing wrong in it."""
        return load(self.config_path)

    @property
    def instance(self) -> Instance:
        """Which instance is meant."""
        if self.instance_named:
            return self.instance_named
        if self._config_path() is None:
            raise CliError(
                f"expected to know the instance's name, found neither --instance nor a {NAME}",
                hint="--instance NAME, as in the broker's own configuration",
            )
        return self.config.instance

    @property
    def socket(self) -> Path:
        """The operator socket."""
        if self.socket_named:
            return self.socket_named
        return self.config.socket

    @property
    def key(self) -> Path:
        """The key that signs. Raises CliError when none is named anywhere."""
        if self.key_named:
            return self.key_named.expanduser()
        # Without a configuration that is the mistake, unless something of it was named in its place.
        named = self.socket_named or self.instance_named
        operator = self.config.operator if self._config_path() or not named else None
        if operator is None or operator.signing_key is None:
            raise CliError(
                "expected a key to sign with, found neither --key nor operator.signing_key in the configuration",
                hint="--key ~/.ssh/id_ed25519, or set signing_key in the operator block",
            )
        return operator.signing_key

    @property
    def expiry_s(self) -> int:
        """How long a directive holds unless the command says otherwise."""
        operator = self.config.operator if self._config_path() else None
        return operator.directive_expiry_s if operator else DEFAULT_EXPIRY_S

    def _config_path(self) -> Path | None:
        return find(self.named, os.environ, Path.cwd())


def find(named: Path | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    """The configuration that is named, else the variable's, else the nearest lever.yaml upwards; None if there is none.

    A folder stands for the lever.yaml in it. Raises CliError for a nearest one that somebody else could have put there.
    """
    if chosen := named or _from(environment):
        chosen = chosen.expanduser()
        return chosen / NAME if chosen.is_dir() else chosen
    for candidate in _upwards(folder):
        if os.path.lexists(candidate):
            _must_be_ours(candidate)
            return candidate
    return None


def load(path: Path) -> Config:
    """The configuration in a file. Raises CliError, with a line for each thing wrong in it."""
    # A third of a second's worth of imports, which --help and the agent's side can do without.
    from broker import offline

    try:
        return offline.load_config(path)
    except offline.ConfigError as error:
        first, *more = error.lines
        raise CliError(first, more=more, hint=error.hint) from error


def _from(environment: Mapping[str, str]) -> Path | None:
    value = environment.get(VARIABLE)
    return Path(value) if value else None


def _upwards(folder: Path) -> Iterator[Path]:
    yield from (place / NAME for place in (folder, *folder.parents))


def _must_be_ours(path: Path) -> None:
    """A configuration names commands to run and keys to sign with: not from whoever may write to /tmp."""
    try:
        found = path.stat()
    except OSError as error:
        raise CliError(f"{path} can't be read: {error.strerror}", hint=f"ls -l {path}") from error
    if found.st_uid in (os.geteuid(), 0) and not found.st_mode & stat.S_IWOTH:
        return
    whose = f"belongs to uid {found.st_uid}" if found.st_uid != os.geteuid() else "can be written by everybody"
    raise CliError(
        f"expected a {NAME} of yours in this folder or one above it, found {path}, which {whose}",
        hint=f"look at it, and if you trust it: --config {path}",
        exit=Exit.REFUSED,
    )
