"""`lever stop-all` and `lever resume`: the emergency stop, and its end."""

from __future__ import annotations

import click

from lever import show
from lever.exits import CliError, Exit
from lever.groups import examples
from lever.params import as_json, with_key, with_socket
from lever.where import Place


@click.command("stop-all", epilog=examples("lever stop-all"))
@with_socket
@as_json
def stop_all(place: Place, as_json: bool) -> None:
    """Stop everything that agents do, at once.

    No tool call goes through and no directive is handed out until `lever resume`. It needs no key: whoever may use
    the operator socket may stop.
    """
    from lever.line import Line

    answer = Line(place.socket).post("/stop", {})
    if as_json:
        return show.data(answer)
    show.put("stopped" if answer.get("stopped") else "it is stopped already")
    show.say("next, when it may go on: lever resume")


@click.command(epilog=examples("lever resume"))
@click.option("--yes", is_flag=True, help="Sign without asking.")
@with_key
@as_json
def resume(place: Place, yes: bool, as_json: bool) -> None:
    """Lift the emergency stop, signed."""
    from lever.envelopes import met, order

    line = met(place)
    answer = line.post("/admin/stop_lift", order(place, "stop_lift", {}, asking=True, yes=yes))
    if as_json:
        show.data(answer)
    if not answer.get("lifted"):
        raise CliError("nothing to resume: nothing is stopped", hint="lever broker status", exit=Exit.REFUSED)
    if not as_json:
        show.put("resumed")
