"""What the broker's unit runs and needs, found out from the configuration, this interpreter and the file system."""

from __future__ import annotations

import ipaddress
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lever.exits import CliError, Exit
from lever.unit import Service, Unit

if TYPE_CHECKING:
    from broker.offline import Config

_PASSED_ON = (
    "PATH",
    "LANG",
    "TZ",
)  # where ssh-keygen and delivery commands are found; how dates in signers' lines read


def unit_of(config: Config, path: Path) -> Unit:
    """The unit's name, for a configuration that was read from `path`."""
    # The file's own name stays: what is relative in it stands in the folder by which it is named.
    return Unit(config.instance, path.parent.resolve() / path.name)


def service_of(config: Config, path: Path) -> Service:
    """All of the unit. Raises CliError when the state folder is not there."""
    unit, state = unit_of(config, path), config.state.resolve()
    operator = config.operator
    return Service(
        unit=unit,
        program=program(),
        state=state,
        socket=config.socket.parent.resolve() / config.socket.name,
        port=config.listen.port,
        reads=tuple({unit.config.resolve().parent, *_operators(config), *_interpreter()}),
        signing_key=operator.signing_key.resolve() if operator and operator.signing_key else None,
        user=_owner(state),
        commands=any(_runs_commands(config)) or bool(config.servers),
        sandboxes=any(server.command and server.sandbox is not None for server in config.servers.values()),
        loopback=_loopback(config.listen.host),
        connections=config.limits.max_connections,
        environment={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
    )


def program() -> tuple[str, ...]:
    """How this `lever` is started, by its absolute path."""
    beside = Path(sys.executable).with_name("lever")
    for found in (Path(sys.argv[0]).absolute(), beside):
        if found.name == "lever" and found.is_file() and os.access(found, os.X_OK):
            return (str(found),)
    if on_path := shutil.which("lever"):
        return (str(Path(on_path).absolute()),)
    raise CliError(
        f"expected the lever command beside {sys.executable} or on PATH, found none",
        hint="install the package lever-broker, and run its lever",
        exit=Exit.UNEXPECTED,
    )


def _operators(config: Config) -> Iterator[Path]:
    """The folders by which allowed_signers is reached: its own, and that of the file behind a symbolic link."""
    if config.operator:
        signers = config.operator.allowed_signers
        yield from (signers.parent.resolve(), signers.resolve().parent)


def _interpreter() -> Iterator[Path]:
    """Every folder that this Python, its packages and `lever` are read from."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    folders = [Path(place) for place in (*prefixes, *sys.path) if place] + [Path(program()[0]).parent]
    # A chain of links leads from a virtual environment's python to the real one; each link must be there.
    link = Path(sys.executable)
    while link.is_symlink():
        link = link.parent / link.readlink()
        folders.append(link.parent)
    for folder in folders:
        yield from (place for place in (Path(os.path.normpath(folder)), folder.resolve()) if place.is_dir())


def _owner(state: Path) -> str:
    """Who owns the state folder: the broker runs as that user, and takes no other's."""
    try:
        return state.owner()
    except KeyError:
        return str(state.stat().st_uid)
    except OSError as error:
        raise CliError(
            f"expected the state folder {state}, found that it can't be read: {(error.strerror or '').lower()}",
            hint="lever init writes a new instance, state folder included",
        ) from error


def _runs_commands(config: Config) -> Iterator[bool]:
    from broker.offline import ToCommand

    for agent in config.agents.values():
        yield from (isinstance(way, ToCommand) for way in agent.deliver)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
