"""`lever agent`: the operator's side of agents. The agent's own side is in agent_side.py, in the same group."""

from __future__ import annotations

import hashlib
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from broker.errors import Malformed
from broker.wire import bundle
from broker.wire.bundle import Bundle
from broker.wire.names import Cn
from lever import directives, draft, show
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.new_file import new_file
from lever.params import CN, DURATION, PATH, as_json, with_key
from lever.where import Place

_WHY = {
    "frozen": "one certificate was renewed with two keys: somebody holds a copy of this identity; invite it anew",
    "paused": "you paused it: lever agent resume NAME",
    "revoked": "you revoked it: only a new invite lets it in again",
}
_HEADERS = ("AGENT", "GEN", "STATE", "CERTIFICATE UNTIL", "SEEN", "OPEN")


def _agents_side(group: Story) -> None:
    from lever.commands import agent_install, agent_side

    agent_side.register(group)
    group.add_command(agent_install.install)


@click.group(cls=Story, later=_agents_side)
def agent() -> None:
    """Invite agents, shut them out; or be one.

    The operator invites, lists, shows, pauses, resumes and revokes, signed with an operator key. Enrol, renew, consume,
    check and inbox run beside the agent, from its bundle and its identity folder.
    """


@agent.command(
    epilog=examples(
        "lever agent invite worker-a --out worker-a.json",
        "lever agent invite worker-a --json | ssh box lever agent enrol --bundle -",
    )
)
@click.argument("name", type=CN)
@click.option("--out", type=PATH, metavar="FILE", help="Where to write the bundle. Else bootstrap-NAME.json.")
@click.option(
    "--expires", "expires_s", type=DURATION, metavar="DUR", help="How long the ticket works. Else limits.ticket_s."
)
@click.option("--tenant", type=CN, metavar="NAME", help="Whose policy narrows the instance's for this agent.")
@click.option("--project", type=CN, metavar="NAME", help="Whose policy narrows it further.")
@with_key
@as_json
def invite(
    place: Place,
    name: Cn,
    out: Path | None,
    expires_s: int | None,
    tenant: Cn | None,
    project: Cn | None,
    as_json: bool,
) -> None:
    """Write the bundle with which an agent enrols.

    It works once, for this name, until it expires, and holds a secret: hand it over in a way you trust. The file is
    0600 and new, never through a symlink and never over another file. With --json the bundle is printed instead.
    """
    path = out or Path(f"bootstrap-{name}.json")
    if out and as_json:
        raise CliError("expected one of --out and --json: the bundle goes to one place", hint=f"--out {out}")
    with ExitStack() as opened:
        file = None if as_json else opened.enter_context(new_file(path))
        made, expires_at = _invited(place, name, expires_s, {"tenant": tenant, "project": project})
        if file is None:
            return show.data(_members(made))
        file.write(bundle.encode(made))
    show.say(f"wrote {path}: {name} enrols with it before {expires_at}, once")
    show.say(f"next, beside the agent: lever agent enrol --bundle {path}")


@agent.command("list", epilog=examples("lever agent list", "lever agent list --json"))
@with_key
@as_json
def list_(place: Place, as_json: bool) -> None:
    """List agents and open invitations."""
    from lever.envelopes import ask

    answer = ask(place, "/admin/agent_list", "agent_list", {})
    if as_json:
        return show.data(answer)
    found = answer.get("agents") or []
    show.table(_HEADERS, [_row(one) for one in found]) if found else show.say("no agents; lever agent invite NAME")


@agent.command("show", epilog=examples("lever agent show worker-a"))
@click.argument("name", type=CN)
@with_key
@as_json
def show_(place: Place, name: Cn, as_json: bool) -> None:
    """Show what the broker knows of one agent, and which directives it has not fetched."""
    from lever.envelopes import ask

    found = ask(place, "/admin/agent_show", "agent_show", {"cn": name}).get("agents") or []
    if not found:
        raise CliError(
            f"the broker knows no agent {name}", hint=f"lever agent list; lever agent invite {name}", exit=Exit.REFUSED
        )
    if as_json:
        return show.data(found[0])
    show.facts(_facts(found[0]))
    if pending := found[0].get("pending"):
        show.table(directives.HEADERS, [directives.row(one, draft.now()) for one in pending])


@agent.command(epilog=examples("lever agent revoke worker-a"))
@click.argument("name", type=CN)
@with_key
@as_json
def revoke(place: Place, name: Cn, as_json: bool) -> None:
    """Shut an agent out at once.

    Its certificate stops working, on open connections too; its tickets and its open directives are void.
    """
    from lever.envelopes import change

    answer = change(place, "/admin/agent_revoke", "agent_revoke", {"cn": name})
    if as_json:
        show.data(answer)
    if not answer.get("revoked"):
        raise CliError(
            f"nothing to revoke: {name} is neither enrolled nor invited", hint="lever agent list", exit=Exit.REFUSED
        )
    if not as_json:
        show.put(f"revoked {name}")


@agent.command(epilog=examples("lever agent pause worker-a"))
@click.argument("name", type=CN)
@with_key
@as_json
def pause(place: Place, name: Cn, as_json: bool) -> None:
    """Bar an agent for a while.

    It gets nothing and does nothing until it is resumed; only its certificate goes on being renewed. What you sent,
    and send, waits; its leases are closed. The pause is of the name: a new enrolment does not end it.
    """
    _turned(place, "pause", "paused", name, as_json, "it is paused already, or nobody of that name is enrolled")


@agent.command(epilog=examples("lever agent resume worker-a"))
@click.argument("name", type=CN)
@with_key
@as_json
def resume(place: Place, name: Cn, as_json: bool) -> None:
    """End an agent's pause: it is told what waited."""
    _turned(place, "resume", "resumed", name, as_json, "it is not paused")


def _turned(place: Place, verb: str, done: str, name: Cn, as_json: bool, why_not: str) -> None:
    from lever.envelopes import change

    answer = change(place, f"/admin/agent_{verb}", f"agent_{verb}", {"cn": name})
    if as_json:
        show.data(answer)
    if not answer.get(done):
        raise CliError(f"nothing to {verb} of {name}: {why_not}", hint=f"lever agent show {name}", exit=Exit.REFUSED)
    if not as_json:
        show.put(f"{done} {name}")


def _invited(place: Place, name: Cn, expires_s: int | None, layers: dict[str, Cn | None]) -> tuple[Bundle, str]:
    """A bundle with a ticket that the broker knows by its digest alone, and when the ticket ends."""
    from lever.envelopes import change

    ticket = secrets.token_urlsafe(32)
    params = {"cn": str(name), "ticket_digest": hashlib.sha256(ticket.encode()).hexdigest()}
    params |= {layer: str(of) for layer, of in layers.items() if of}
    if expires_s is not None:
        params["expires_s"] = str(expires_s)
    answer = change(place, "/admin/agent_invite", "agent_invite", params)
    made = Bundle(ticket, str(answer.get("broker_ca")), str(answer.get("broker_url")), name)
    try:
        bundle.encode(made)
    except Malformed as error:
        raise CliError(
            f"the broker's answer makes no bundle: {error}", hint="lever doctor", exit=Exit.REFUSED
        ) from error
    return made, str(answer.get("expires_at"))


def _members(made: Bundle) -> dict[str, str]:
    return {
        "ticket": made.ticket,
        "broker_ca": made.broker_ca,
        "broker_url": made.broker_url,
        "agent_cn": made.agent_cn,
    }


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    certificate = one.get("certificate") or {}
    cells = (
        one.get("cn"),
        one.get("generation"),
        one.get("state"),
        certificate.get("not_after"),
        one.get("last_seen_at"),
    )
    return (*("-" if cell is None else str(cell) for cell in cells), str(one.get("active_directives", "-")))


def _facts(one: dict[str, Any]) -> dict[str, str]:
    certificate = one.get("certificate") or {}
    named = {
        "agent": one.get("cn"),
        "generation": one.get("generation"),
        "state": one.get("state"),
        "certificate until": certificate.get("not_after"),
        "renewals": certificate.get("renewals"),
        "seen": one.get("last_seen_at"),
        "invited until": one.get("invite_expires_at"),
        "open directives": one.get("active_directives"),
        "because": _WHY.get(str(one.get("state"))),
    }
    return {name: str(value) for name, value in named.items() if value is not None}
