"""`lever tools`: what tool servers define, and what of it you accepted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lever import show
from lever.exits import CliError
from lever.groups import Story, examples
from lever.params import SERVER, as_json, with_key
from lever.where import Place

if TYPE_CHECKING:
    from broker.wire.server_identity import ServerIdentity

_HEADERS = ("TOOL", "STATE", "DEFINITION", "ACCEPTED")
_SHORT_HEX = 12


@click.group(cls=Story)
def tools() -> None:
    """See what tool servers define, and accept it.

    A tool that you have not accepted can't be called. One that is changed afterwards can't be called either, until
    you accept it anew: agents see your accepted text, and nothing else.
    """


@tools.command("list", epilog=examples("lever tools list", "lever tools list mail --json"))
@click.argument("server", type=SERVER, required=False)
@with_key
@as_json
def list_(place: Place, server: str | None, as_json: bool) -> None:
    """List the tools of all servers, or of one.

    Each is accepted; quarantined, which is not accepted yet; changed since; gone;
    unacceptable, and then why; or unavailable, where its server does not answer, and then why:
    a server of which nothing was accepted has a row of its own. A tool is
    also changed when its server is: when it tells another name or version of itself, or is
    started or reached in another way than the one that you accepted it of.
    """
    from lever import definitions, in_force

    found = in_force.tools(place, server)
    if as_json:
        return show.data({"servers": found.servers, "unavailable": found.unavailable})
    silent = {name: [{"tool": name, "state": "unavailable"}] for name in found.unavailable}
    listed = [one for name, rows in found.servers.items() for one in rows or silent.get(name, [])]
    missing = [] if server else [name for name in _configured(place) if name not in found.servers]
    if listed:
        show.table(_HEADERS, map(_row, listed))
    elif not missing:
        show.say("no tools; servers are named in the configuration")
    for one in (one for one in listed if one.get("state") == definitions.UNACCEPTABLE):
        show.warn(f"{one.get('tool')} must not be accepted: {one.get('why')}")
    for name in found.unavailable:
        show.warn(f"the server {name} can't be read: {found.why(name)}")
    if missing:
        names = ", ".join(missing)
        show.warn(f"this broker started without {names}, which {place.config_path} names now: restart it")


@tools.command(epilog=examples("lever tools diff mail", "lever tools diff mail send"))
@click.argument("server", type=SERVER)
@click.argument("tool", required=False)
@with_key
@as_json
def diff(place: Place, server: str, tool: str | None, as_json: bool) -> None:
    """Show what changed since you accepted it.

    Of a tool that was never accepted, all of it.
    """
    from lever import definitions, in_force

    rows = in_force.rows(place, server)
    if tool is not None:
        definitions.chosen(server, [row | {"definition": True, "state": ""} for row in rows], [tool])
    found = [row for row in rows if row.get("state") != "accepted" and tool in (None, definitions.name_of(row))]
    if as_json:
        return show.data({"tools": found})
    for row in found:
        show.put(f"{row.get('tool')}  {row.get('state')}")
        show.barred(definitions.differences(row))
    if not found:
        show.say("nothing differs from what you accepted")


@tools.command(epilog=examples("lever tools accept mail", "lever tools accept mail search read"))
@click.argument("server", type=SERVER)
@click.argument("names", metavar="[TOOL]...", nargs=-1)
@click.option("--yes", is_flag=True, help="Sign without asking.")
@partial(with_key, trailing=False)
@as_json
def accept(place: Place, server: str, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Accept tools of SERVER as they are defined now.

    Without names: all that can be and are not accepted as they stand. Shown before you sign: who the server
    is, which you accept with its tools; and each definition, or what changed in it. One with characters that
    can't be seen is refused.
    """
    from broker.wire import accepted
    from lever import definitions, in_force
    from lever.envelopes import attach

    listed = in_force.rows(place, server)
    rows = definitions.chosen(server, listed, names)
    for row in listed if not names else ():
        if row.get("state") == definitions.UNACCEPTABLE:
            show.warn(f"{row.get('tool')} must not be accepted: {row.get('why')}")
    if not rows:
        show.say(f"nothing to accept: every tool of {server} that can be is accepted as it stands")
        return show.data({"accepted": []}) if as_json else None
    pinned = definitions.pinned(server, rows)
    _identity(place, server, pinned[0].identity)
    for row, tool in zip(rows, pinned, strict=True):
        show.say(f"{tool.qualified}  {row.get('state')}  sha256:{tool.digest.hex()}")
        changed = row.get("accepted_definition")
        show.barred(definitions.differences(row) if changed else definitions.told(tool.definition), words=True)
    raw = accepted.encode(server, pinned)
    show.say(f"To be accepted: {len(pinned)} of the tools of {server}")
    answer = attach(place, "tools_accept", {}, raw, yes=yes)
    if as_json:
        return show.data(answer)
    for name in answer.get("accepted") or []:
        show.put(f"accepted {server}.{name}")


def _identity(place: Place, server: str, found: ServerIdentity) -> None:
    """Who it is that is accepted: as it says, and how it is reached, in words where this configuration has them."""
    from broker.wire import server_identity

    configured = _configured(place).get(server)
    lines = [f"name: {found.name}", f"version: {found.version}", f"reached: {found.reached}"]
    if configured and configured.command:
        if server_identity.by_command(configured.command) == found.reached:
            lines.append(f"command: {shlex.join(configured.command)}")
        else:
            show.warn(f"the broker started {server} by another command than this configuration has")
    show.say(f"The server {server}")
    show.barred(lines, words=True)


def _configured(place: Place) -> Mapping[str, Any]:
    """The servers of this configuration; none where a socket and a key were named instead of one."""
    try:
        return place.config.servers
    except CliError:
        return {}


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    digests = (str(one.get(name) or "-")[:_SHORT_HEX] for name in ("digest", "accepted_digest"))
    return (str(one.get("tool")), str(one.get("state")), *digests)
