"""The unit that `lever broker start` asks for. tests/system/test_systemd.py shows that a real systemd obeys it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.wire.names import Instance
from lever.exits import CliError
from lever.unit import Scope, Service, Unit, properties, start_command

PLAIN = Service(
    unit=Unit(Instance("demo"), Path("/srv/demo/lever.yaml")),
    program=("/opt/lever/bin/lever",),
    state=Path("/srv/demo/state"),
    socket=Path("/srv/demo/state/operator.sock"),
    port=8443,
    reads=(Path("/opt/lever"), Path("/usr/lib/python3")),
    signing_key=Path("/srv/demo/keys/operator-1"),
)


def values(service: Service, name: str, scope: Scope = Scope.SYSTEM) -> list[str]:
    """Every value of one property, in order."""
    return [value for key, value in properties(service, scope) if key == name]


def at(folder: str, **changes: object) -> Service:
    """An instance in this folder."""
    place = Path(folder)
    moved = replace(PLAIN, unit=Unit(Instance("demo"), place / "lever.yaml"), state=place / "state")
    moved = replace(moved, socket=place / "state" / "operator.sock", signing_key=place / "keys" / "operator-1")
    return replace(moved, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("commands", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NotifyAccess", "main"),
        ("WatchdogSec", "30"),
        ("Restart", "on-failure"),
        ("StartLimitBurst", "5"),
        ("RestartPreventExitStatus", "2 7"),
        ("KillMode", "mixed"),
        ("UMask", "0077"),
        ("LimitCORE", "0"),
        ("NoNewPrivileges", "yes"),
        ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6"),
        ("RestrictNamespaces", "uts"),
        ("RestrictSUIDSGID", "yes"),
    ],
)
def test_what_holds_in_every_scope_and_with_every_channel(scope: Scope, commands: bool, name: str, value: str) -> None:
    assert values(replace(PLAIN, commands=commands), name, scope) == [value]


@pytest.mark.parametrize(
    ("name", "without", "with_commands"),
    [
        ("MemoryDenyWriteExecute", ["yes"], []),
        ("SystemCallFilter", ["@system-service", "~@privileged @resources"], ["@system-service"]),
        ("ProtectHome", ["tmpfs"], ["read-only"]),
        ("PrivateTmp", ["yes"], ["no"]),
        ("ProcSubset", ["pid"], []),
        ("IPAddressDeny", ["any"], []),
        ("IPAddressAllow", ["localhost"], []),
        ("ProtectSystem", ["strict"], ["strict"]),
        ("CapabilityBoundingSet", [""], [""]),
    ],
)
def test_what_a_delivery_command_costs(name: str, without: list[str], with_commands: list[str]) -> None:
    assert values(PLAIN, name) == without
    assert values(replace(PLAIN, commands=True), name) == with_commands


@pytest.mark.parametrize("name", ["User", "ProtectSystem", "ProtectHome", "PrivateTmp", "CapabilityBoundingSet"])
def test_a_users_own_manager_is_not_asked_for_what_it_cannot_do(name: str) -> None:
    assert values(PLAIN, name, Scope.USER) == []


@pytest.mark.parametrize(("port", "capability"), [(443, "CAP_NET_BIND_SERVICE"), (0, ""), (1024, ""), (8443, "")])
def test_a_low_port_brings_its_one_capability(port: int, capability: str) -> None:
    service = replace(PLAIN, port=port)
    assert values(service, "CapabilityBoundingSet") == values(service, "AmbientCapabilities") == [capability]


def test_a_door_that_others_reach_is_not_fenced_off() -> None:
    assert values(replace(PLAIN, loopback=False), "IPAddressDeny") == []


def test_every_connection_gets_its_descriptor() -> None:
    assert values(replace(PLAIN, connections=5000), "LimitNOFILE") == ["11024"]


@pytest.mark.parametrize(
    ("service", "name", "expected"),
    [
        (PLAIN, "ReadWritePaths", ['"/srv/demo/state"']),
        (PLAIN, "BindPaths", []),
        (PLAIN, "BindReadOnlyPaths", []),
        (PLAIN, "StateDirectory", []),
        (PLAIN, "RuntimeDirectory", []),
        (at("/var/lib/lever/demo"), "StateDirectory", ["lever/demo/state"]),
        (at("/var/lib/lever/demo"), "StateDirectoryMode", ["0700"]),
        (at("/var/lib/lever/demo"), "ReadWritePaths", []),
        (at("/var/lib/lever/a b"), "StateDirectory", []),
        (at("/var/lib/lever/a b"), "ReadWritePaths", ['"/var/lib/lever/a b/state"']),
        (at("/home/op/demo"), "BindPaths", ['"/home/op/demo/state"']),
        (at("/home/op/demo"), "BindReadOnlyPaths", ['"/home/op/demo"']),
        (at("/home/op/demo", commands=True), "BindPaths", []),
        (at("/home/op/demo", commands=True), "ReadWritePaths", ['"/home/op/demo/state"']),
        (at("/home/op/de mo"), "BindPaths", []),
        (at("/home/op/de mo"), "BindReadOnlyPaths", []),
        (at("/home/op/de mo"), "ReadWritePaths", ['"/home/op/de mo/state"']),
        (at("/home/op/de mo"), "ProtectHome", ["read-only"]),
        (at("/home/op/100%"), "PrivateTmp", ["no"]),
        (at("/tmp/demo"), "BindPaths", ['"/tmp/demo/state"']),
        (at("/tmpfoo/demo"), "BindPaths", []),
        (at("/root/d", reads=(Path("/root/d/x"), Path("/root/v"))), "BindReadOnlyPaths", ['"/root/d"', '"/root/v"']),
        (replace(PLAIN, socket=Path("/run/lever/demo.sock")), "RuntimeDirectory", ["lever"]),
        (replace(PLAIN, socket=Path("/run/lever/demo.sock")), "RuntimeDirectoryPreserve", ["yes"]),
        (replace(PLAIN, socket=Path("/run/demo.sock")), "RuntimeDirectory", []),
        (replace(PLAIN, socket=Path("/opt/s/x.sock")), "ReadWritePaths", ['"/srv/demo/state"', '"/opt/s"']),
        (at("/srv/a b"), "ReadWritePaths", ['"/srv/a b/state"']),
    ],
)
def test_only_what_the_broker_needs_is_there(service: Service, name: str, expected: list[str]) -> None:
    assert values(service, name) == expected


@pytest.mark.parametrize(
    ("key", "reads", "hidden"),
    [
        ("/srv/demo/keys/operator-1", [], ['"-/srv/demo/keys"']),
        ("/srv/demo/keys/operator-1", ["/srv/demo/keys"], ['"-/srv/demo/keys/operator-1"']),
        ("/srv/demo/operator-1", [], ['"-/srv/demo/operator-1"']),
        ("/home/op/.ssh/id_ed25519", [], ['"-/home/op/.ssh/id_ed25519"']),
        (None, [], []),
    ],
)
def test_the_operators_key_is_out_of_the_brokers_reach(key: str | None, reads: list[str], hidden: list[str]) -> None:
    service = replace(PLAIN, signing_key=Path(key) if key else None, reads=tuple(map(Path, reads)))
    assert values(service, "InaccessiblePaths") == hidden


@pytest.mark.parametrize("scope", Scope)
def test_the_command_names_the_unit_and_runs_this_lever(scope: Scope) -> None:
    argv = start_command(replace(PLAIN, environment={"PATH": "/bin:/usr/bin"}), scope)
    assert argv[:2] == ["systemd-run", f"--{scope}"]
    assert {"--unit=lever-demo.service", "--service-type=notify", "--setenv=PATH=/bin:/usr/bin"} <= set(argv)
    assert argv[argv.index("--") + 1 :] == ["/opt/lever/bin/lever", "broker", "serve", "/srv/demo/lever.yaml"]


@pytest.mark.parametrize("sign", list("\"'\\$\n"))
def test_a_path_that_systemd_would_not_keep_is_refused(sign: str) -> None:
    with pytest.raises(CliError, match="without quotes"):
        start_command(at(f"/srv/a{sign}b"), Scope.SYSTEM)
