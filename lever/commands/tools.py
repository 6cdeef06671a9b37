"""`lever tools`: what tool servers define, and what of it you accepted."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from lever import show
from lever.groups import Story, examples
from lever.params import SERVER, as_json, with_key
from lever.where import Place

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

    Each is accepted; quarantined, which is not accepted yet; changed since; gone; or
    unavailable, where its server does not answer.
    """
    from lever import in_force

    found = in_force.rows(place, server)
    if as_json:
        return show.data({"servers": found})
    rows = [_row(one) for listed in found.values() for one in listed]
    show.table(_HEADERS, rows) if rows else show.say("no tools; servers are named in the configuration")


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

    rows = in_force.rows(place, server).get(server, [])
    if tool is not None:
        definitions.chosen(server, [row | {"definition": True} for row in rows], [tool])
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

    Without names: all that are not accepted as they stand. Each definition is shown before you sign it, or what
    changed in it; one with characters that can't be seen is refused.
    """
    from broker.wire import accepted
    from lever import definitions, in_force
    from lever.envelopes import attach

    rows = definitions.chosen(server, in_force.rows(place, server).get(server, []), names)
    if not rows:
        show.say(f"nothing to accept: every tool of {server} is accepted as it stands")
        return show.data({"accepted": []}) if as_json else None
    pinned = definitions.pinned(server, rows)
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


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    digests = (str(one.get(name) or "-")[:_SHORT_HEX] for name in ("digest", "accepted_digest"))
    return (str(one.get("tool")), str(one.get("state")), *digests)
