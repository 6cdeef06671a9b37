"""`lever broker`: run the daemon, keep it running under systemd, and see how it is."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import wraps
from typing import Any

import click

from lever import show
from lever.exits import CliError, Exit
from lever.groups import HELP_OPTIONS, Story, examples
from lever.params import as_json, with_config, with_socket
from lever.service import program, service_of, unit_of
from lever.supervised import supervised
from lever.systemd import Systemd, UnitState
from lever.unit import Scope, Service, Unit, start_command
from lever.where import Place, load


@click.group(cls=Story, context_settings=HELP_OPTIONS)
def broker() -> None:
    """Run the broker, and see how it is."""


def _scoped(function: Callable[..., Any]) -> Callable[..., Any]:
    """--system and --user, as the argument `scope`: None when neither is given."""

    @click.option("--system", "scope", flag_value="system", help="The machine's service manager (default for root).")
    @click.option("--user", "scope", flag_value="user", help="Your own service manager (default for everybody else).")
    @wraps(function)
    def chosen(*args: Any, scope: str | None, **kwargs: Any) -> Any:
        return function(*args, scope=Scope(scope) if scope else None, **kwargs)

    return chosen


@broker.command(epilog=examples("lever broker serve", "lever broker serve /srv/demo/lever.yaml"))
@with_config
@click.option(
    "--accept-clock", is_flag=True, help="Go on where the clock is right and the journal's newest time is wrong."
)
@click.option(
    "--restored", is_flag=True, help="Go on with a state folder that is older than what was last written: a backup."
)
def serve(place: Place, accept_clock: bool, restored: bool) -> int:
    """Run the daemon in the foreground.

    It logs on standard error, one JSON object a line, and says one line once both doors answer. SIGTERM and Ctrl-C
    finish what was accepted and end it.

    A clock that is behind the journal's newest time stops every decision. Where it is the journal that is wrong (the
    clock once stood in the future), --accept-clock writes that down and goes on: what was active is invalidated, open
    invitations are void. An agent whose certificate was renewed by the wrong clock needs a new invite.

    After a backup was put back, --restored writes that down: nobody knows what was used, revoked or given since. So
    all that was active is ended, every agent has to be invited anew, and for two minutes nothing is accepted.
    """
    from broker.daemon import serve as run

    load(place.config_path)  # here, because its errors are told line by line
    return run(place.config_path, accept_clock=accept_clock, restored=restored)


@broker.command(epilog=examples("lever broker status", "lever broker status --json"))
@with_socket
@_scoped
@as_json
def status(place: Place, scope: Scope | None, as_json: bool) -> None:
    """Ask the broker how it is, and systemd about its unit. Exit 4 when no broker answers."""
    from lever.line import health

    unit, state = None, None
    if not place.socket_named:
        unit = unit_of(place.config, place.config_path)
        state = _find(unit, scope)[1]
    answer, trouble = None, None
    try:
        answer = health(place.socket)
    except CliError as error:
        trouble = error
    if as_json:
        show.data({"socket": str(place.socket), "health": answer, "unit": _data(unit, state) if unit else None})
    else:
        show.facts({"socket": str(place.socket), **_health_facts(answer or {}), **_unit_facts(unit, state)})
    if trouble:
        raise trouble


@broker.command(epilog=examples("lever broker start", "lever broker start --print", "sudo lever broker start --system"))
@with_config
@_scoped
@click.option("--print", "only_print", is_flag=True, help="Show the command that would start it, and run nothing.")
@as_json
def start(place: Place, scope: Scope | None, only_print: bool, as_json: bool) -> None:
    """Run the broker as a hardened systemd unit.

    Returns once both doors answer. The unit is transient: it restarts when the broker fails or hangs, and is gone after
    a reboot or `lever broker stop`. In system scope it runs as the owner of the state folder.
    """
    service = service_of(place.config, place.config_path)
    manager = Systemd(scope or _own_scope())
    argv = start_command(service, manager.scope)
    if only_print:
        return show.data({"unit": service.unit.name, "argv": argv}) if as_json else show.put(shlex.join(argv))
    _must_work(manager, service.unit)
    state = manager.state(service.unit)
    if state and state.up:
        return _say("runs already", service.unit, state, as_json)
    _start(manager, service, state)
    _say("runs", service.unit, manager.state(service.unit), as_json)


@broker.command(epilog=examples("lever broker stop"))
@with_config
@_scoped
@as_json
def stop(place: Place, scope: Scope | None, as_json: bool) -> None:
    """Stop the unit: the broker finishes what it accepted."""
    unit = unit_of(place.config, place.config_path)
    manager, state = _found(unit, scope)
    if ran := state is not None and state.active != "inactive":
        manager.stop(unit)
    _say("is stopped" if ran else "did not run", unit, None, as_json)


@broker.command(epilog=examples("lever broker restart"))
@with_config
@_scoped
@as_json
def restart(place: Place, scope: Scope | None, as_json: bool) -> None:
    """Stop the unit and start it anew, as the configuration now says."""
    service = service_of(place.config, place.config_path)
    manager, state = _found(service.unit, scope)
    if state:
        manager.stop(service.unit)
    _start(manager, service, state)
    _say("runs anew" if state else "runs", service.unit, manager.state(service.unit), as_json)


@broker.command(epilog=examples("lever broker logs", "lever broker logs --follow", "lever broker logs -n 1000 --json"))
@with_config
@_scoped
@click.option("-f", "--follow", is_flag=True, help="Go on showing what comes.")
@click.option("-n", "--lines", type=click.IntRange(0), default=100, show_default=True, help="How many of the last.")
@as_json
def logs(place: Place, scope: Scope | None, follow: bool, lines: int, as_json: bool) -> None:
    """Show what the unit logged, by journalctl."""
    unit = unit_of(place.config, place.config_path)
    argv = _found(unit, scope)[0].log_command(unit)
    argv += [f"--lines={lines}", f"--output={'json' if as_json else 'short-iso'}", *(["--follow"] if follow else [])]
    os.execvp(argv[0], argv)  # noqa: S606  # journalctl takes our place: signals and the exit status are its own


def _own_scope() -> Scope:
    return Scope.SYSTEM if os.geteuid() == 0 else Scope.USER


def _must_work(manager: Systemd, unit: Unit) -> None:
    """The service manager must be there; where it is not, say what to do instead."""
    if why := manager.why_not():
        for line in supervised(sys.platform, program(), unit):
            show.say(line)
        raise CliError(why, hint=f"lever broker serve {shlex.quote(str(unit.config))}", exit=Exit.UNEXPECTED)


def _find(unit: Unit, scope: Scope | None) -> tuple[Systemd, UnitState | None]:
    """The unit where it is known: in the scope that is asked for, else in one's own or in the other."""
    own = _own_scope()
    managers = [Systemd(one) for one in ([scope] if scope else [own, *(set(Scope) - {own})])]
    for manager in managers:
        if not manager.why_not() and (state := manager.state(unit)):
            return manager, state
    return managers[0], None


def _found(unit: Unit, scope: Scope | None) -> tuple[Systemd, UnitState | None]:
    """As `_find`, for what can only be done by a service manager."""
    manager, state = _find(unit, scope)
    _must_work(manager, unit)
    return manager, state


def _start(manager: Systemd, service: Service, known: UnitState | None) -> None:
    installed = known is not None and known.installed
    manager.start(service.unit, start_command(service, manager.scope, installed=installed))
    if user := manager.ends_with_the_session():
        show.warn(f"the broker ends when {user} logs out; to keep it running: loginctl enable-linger {user}")


def _say(words: str, unit: Unit, state: UnitState | None, as_json: bool) -> None:
    show.data(_data(unit, state)) if as_json else show.say(f"{unit.name} {words}")


def _data(unit: Unit, state: UnitState | None) -> dict[str, object]:
    return {"name": unit.name, **(asdict(state) if state else {"active": "inactive"})}


def _health_facts(health: Mapping[str, Any]) -> dict[str, str]:
    """What the broker says of itself, for people. It may be a newer broker's answer, with less or more in it."""
    told = {name: health.get(name) for name in ("instance", "version", "pid", "agent_door", "records")}
    told["active directives"] = (health.get("directives") or {}).get("active")
    if health.get("stopped_at"):
        told["stopped"] = f"by the operator since {health['stopped_at']}: lever resume"
    if health.get("clock_behind"):
        told["clock"] = "behind the journal: nothing is decided (lever doctor says what to do)"
    return {name.replace("_", " "): str(value) for name, value in told.items() if value is not None}


def _unit_facts(unit: Unit | None, state: UnitState | None) -> dict[str, str]:
    if unit is None or state is None:
        return {}
    end = "" if state.result == "success" else f", last end: {state.result}"
    ran = f", restarted {state.restarts} times" if state.restarts else ""
    return {"unit": f"{unit.name} ({state.scope}): {state.active} ({state.sub}){ran}{end}"}
