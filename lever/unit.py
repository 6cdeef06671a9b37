"""The broker as a transient, hardened systemd unit: which `systemd-run` command starts it. Pure.

What each property is for, and what a delivery command costs of it: docs/operating/systemd.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from broker.wire.names import Instance
from lever.exits import CliError

Properties = Iterator[tuple[str, str]]

# What the unit does not see unless it is bound into it.
_VEILED: Final = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/-]+", re.ASCII)
_UNKEPT: Final = re.compile(r"[\"'\\$\x00-\x1f\x7f]")
_STATUSES_THAT_STAY: Final = "2 7"  # usage and a corrupt file: another start finds the same


class Scope(StrEnum):
    """Which service manager runs the unit: the machine's, or the user's own."""

    SYSTEM = "system"
    USER = "user"


@dataclass(frozen=True)
class Unit:
    """Which unit is this instance's. config: the absolute path of its configuration."""

    instance: Instance
    config: Path

    @property
    def name(self) -> str:
        """The unit's name, as systemctl takes it."""
        return f"lever-{self.instance}.service"

    @property
    def description(self) -> str:
        """The unit's description. It holds the configuration, which tells two instances of one name apart."""
        return f"Lever broker {self.instance} ({self.config})"


@dataclass(frozen=True)
class Service:
    """What the unit runs and what that needs. Every path is absolute.

    program: how `lever` is started; reads: folders that it must be able to read; signing_key: a file that it must not;
    user: the account it runs as in system scope; commands: does it start programs of the operator's?; sandboxes: does
    it confine some of them?; loopback: do only this machine's own callers reach the agent door?; environment: passed
    on as it is.
    """

    unit: Unit
    program: tuple[str, ...]
    state: Path
    socket: Path
    port: int
    reads: tuple[Path, ...] = ()
    signing_key: Path | None = None
    user: str = "root"
    commands: bool = False
    sandboxes: bool = False
    loopback: bool = True
    connections: int = 1024
    watchdog_s: int = 30
    environment: Mapping[str, str] = field(default_factory=dict)


def start_command(service: Service, scope: Scope, *, installed: bool = False) -> list[str]:
    """The argv that starts the unit and returns once it is ready. installed: the unit has a file of its own.

    Raises CliError for a path that systemd would read differently after a daemon-reload: it writes down a transient
    unit without the escapes that reading it takes.
    """
    if installed:
        return ["systemctl", f"--{scope}", "start", "--", service.unit.name]
    for path in (service.unit.config, service.state, service.socket, *service.program, service.signing_key or ""):
        if _UNKEPT.search(str(path)):
            raise CliError(
                f"expected a path without quotes, backslashes, dollar signs and control characters, found {path}",
                hint="systemd can't keep such a path: move the instance, or run lever broker serve another way",
            )
    argv = ["systemd-run", f"--{scope}", "--quiet", "--no-ask-password", "--service-type=notify"]
    argv += [f"--unit={service.unit.name}", f"--description={service.unit.description}"]
    argv += [f"--setenv={name}={value}" for name, value in sorted(service.environment.items())]
    argv += [f"--property={name}={value}" for name, value in properties(service, scope)]
    return [*argv, "--", *service.program, "broker", "serve", str(service.unit.config)]


def properties(service: Service, scope: Scope) -> Properties:
    """Every property of the unit, in the words of systemd.exec(5), systemd.service(5) and systemd.kill(5)."""
    yield from _life(service)
    yield from _calls(service)
    if scope is Scope.SYSTEM:
        # A user's own service manager can do none of these without a user namespace, in which the owners of files and
        # the uids of callers, both of which the broker checks, would no longer be the true ones.
        yield from _powers(service)
        yield from _kernel(service)
        yield from _files(service)


def _life(service: Service) -> Properties:
    yield "NotifyAccess", "main"
    yield "WatchdogSec", str(service.watchdog_s)
    yield "TimeoutStartSec", "300"
    yield "TimeoutStopSec", "30"
    yield "TimeoutAbortSec", "5"
    yield "KillMode", "mixed"
    yield "Restart", "on-failure"
    yield "RestartSec", "1"
    yield "RestartPreventExitStatus", _STATUSES_THAT_STAY
    yield "StartLimitIntervalSec", "60"
    yield "StartLimitBurst", "5"
    yield "UMask", "0077"
    yield "LimitCORE", "0"
    yield "LimitNOFILE", str(2 * service.connections + 1024)
    yield "SyslogIdentifier", f"lever-{service.unit.instance}"


def _calls(service: Service) -> Properties:
    """What the process and its children may ask the kernel for. All of it is inherited, by delivery commands too."""
    for name in ("NoNewPrivileges", "LockPersonality", "RestrictRealtime", "RestrictSUIDSGID"):
        yield name, "yes"
    # Not `yes`: systemd 252 writes that down as an empty value, and after a daemon-reload reads it as `no`. To make a
    # namespace of kind uts takes a capability that the unit lacks, and can't get without one of kind user.
    if not service.sandboxes:
        yield "RestrictNamespaces", "uts"
    yield "RestrictAddressFamilies", f"AF_UNIX AF_INET AF_INET6{' AF_NETLINK' if service.sandboxes else ''}"
    yield "SystemCallArchitectures", "native"
    yield "SystemCallErrorNumber", "EPERM"
    yield "SystemCallFilter", f"@system-service{' @mount' if service.sandboxes else ''}"
    if not service.commands:
        yield "SystemCallFilter", "~@privileged @resources"
        yield "MemoryDenyWriteExecute", "yes"


def _powers(service: Service) -> Properties:
    low_port = "CAP_NET_BIND_SERVICE" if 0 < service.port < 1024 else ""
    yield "User", service.user
    # Who is uid 0 may make a sandbox in which that is uid 0 too only with this one.
    sandboxing = "CAP_SETFCAP" if service.sandboxes and service.user in ("root", "0") else ""
    yield "CapabilityBoundingSet", " ".join(filter(None, (low_port, sandboxing)))
    yield "AmbientCapabilities", low_port
    yield "RemoveIPC", "yes"
    if service.loopback and not service.commands:
        yield "IPAddressDeny", "any"
        yield "IPAddressAllow", "localhost"


def _kernel(service: Service) -> Properties:
    for name in ("Clock", "ControlGroups", "Hostname", "KernelModules"):
        yield f"Protect{name}", "yes"
    yield "PrivateDevices", "yes"
    if service.sandboxes:
        return  # a sandbox has a /proc of its own, which the kernel refuses where parts of the outer one are covered
    for name in ("KernelLogs", "KernelTunables"):
        yield f"Protect{name}", "yes"
    yield "ProtectProc", "invisible"
    if not service.commands:
        yield "ProcSubset", "pid"


def _files(service: Service) -> Properties:
    """A file system that is read-only but for the state; homes and shared temporary folders appear as far as needed."""
    reads = _outermost({service.unit.config.parent, *service.reads})
    veil = not service.commands and all(map(_plain, filter(_veiled, (*reads, service.state, service.socket))))
    yield "ProtectSystem", "strict"
    yield "ProtectHome", "tmpfs" if veil else "read-only"
    yield "PrivateTmp", "yes" if veil else "no"
    if veil:
        yield from (("BindReadOnlyPaths", _quoted(place)) for place in reads if _veiled(place))
    yield from _writable(service.state, "State", Path("/var/lib"), veil)
    if service.socket.parent != service.state:
        yield from _writable(service.socket.parent, "Runtime", Path("/run"), veil)
    if service.signing_key is not None:
        yield "InaccessiblePaths", _quoted(_hidden(service, service.signing_key), "-")


def _writable(folder: Path, kind: str, base: Path, veil: bool) -> Properties:
    if veil and _veiled(folder):
        yield "BindPaths", _quoted(folder)
    elif folder != base and folder.is_relative_to(base) and not _veiled(folder) and _plain(folder):
        yield f"{kind}Directory", str(folder.relative_to(base))
        yield f"{kind}DirectoryMode", "0700"
        if kind == "Runtime":
            yield "RuntimeDirectoryPreserve", "yes"  # other instances have their sockets in the same folder
    else:
        yield "ReadWritePaths", _quoted(folder)


def _hidden(service: Service, key: Path) -> Path:
    """The key, or its whole folder if that is the instance's own folder for keys.

    The operator's keys are the command line's: a broker that was taken over must not be able to sign.
    """
    needed = (service.unit.config, service.state, service.socket, *service.reads)
    own = key.parent != service.unit.config.parent and _within(key.parent, (service.unit.config.parent,))
    return key.parent if own and not any(_within(path, (key.parent,)) for path in needed) else key


def _veiled(path: Path) -> bool:
    return _within(path, _VEILED)


def _plain(path: Path) -> bool:
    """Does the path survive in systemd's own unit file, in the properties that it writes down without quotes?"""
    return _PLAIN.fullmatch(str(path)) is not None


def _within(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _outermost(folders: set[Path]) -> list[Path]:
    return sorted(folder for folder in folders if not _within(folder, folders - {folder}))


def _quoted(path: Path, prefix: str = "") -> str:
    """One word for systemd's parser."""
    return f'"{prefix}{path}"'
