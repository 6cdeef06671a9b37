"""`lever lease`: let an agent read one account, now and for seconds."""

from __future__ import annotations

from typing import Any

import click

from broker.wire import names
from broker.wire.names import NAMESPACE_DIRECTIVE, Cn, DirectiveId
from broker.wire.statement import LeaseAction, Target
from lever import draft, show, signer
from lever.draft import Window
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.params import CN, ID, as_json, with_key
from lever.where import Place

_HEADERS = ("LEASE", "AGENT", "ACCOUNT", "USED", "CLOSES")
_ENDED_HEADERS = ("CLOSED LEASE", "AGENT", "ACCOUNT", "READS", "SECONDS", "BY")
_EXAMPLE = "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"
_MAX_OPERATIONS = 100


@click.group(cls=Story)
def lease() -> None:
    """Let an agent read one account for seconds.

    A lease waits up to 60 seconds for its first read, and closes by itself: after its seconds or its operations,
    whichever ends first. A new one replaces the old and adds nothing to it.
    """


@lease.command(
    "open", epilog=examples("lever lease open worker-a mail", "lever lease open worker-a mail --operations 5")
)
@click.argument("agent", type=CN)
@click.argument("account")
@click.option("--minutes", type=click.IntRange(min=1), metavar="N", help="Deprecated: it can only shorten the lease.")
@click.option(
    "--operations",
    type=click.IntRange(1, _MAX_OPERATIONS),
    metavar="N",
    help="At most so many reads; it can only lower.",
)
@click.option("--yes", is_flag=True, help="Sign without asking.")
@with_key
@as_json
def open_(
    place: Place, agent: Cn, account: str, minutes: int | None, operations: int | None, yes: bool, as_json: bool
) -> None:
    """Sign that AGENT may read ACCOUNT now.

    As long, and as often, as the policy in force says of the account: 90 seconds and 20 operations where it says
    nothing else. Refused, with what helps, while no read would go through: everything or the agent is stopped, or its
    run is over or has no budget left.
    """
    from lever.envelopes import met
    from lever.line import signed_pair

    draft.must_be_an_agent(agent)
    line, key = met(place), place.key
    seconds, most = _terms(place, agent, account)
    # The old word for how long: kept so that scripts go on working, and never longer than what is configured.
    seconds = seconds if minutes is None else min(minutes * 60, seconds)
    action = LeaseAction(account, seconds, most if operations is None else min(operations, most))
    found = line.get("/directive/resolve", agent=agent)
    target = Target(agent, names.generation(found.get("generation")))
    raw = draft.drafted(place.instance, target, action, Window(None, place.expiry_s), draft.now())
    draft.review(raw, key)
    draft.consent(yes)
    body = signed_pair("statement", raw, signer.sign(key, NAMESPACE_DIRECTIVE, raw))
    _told(line.post("/directive/send", body), action, minutes is not None, as_json)


@lease.command("list", epilog=examples("lever lease list", "lever lease list --all --json"))
@click.option("--all", "everything", is_flag=True, help="Also those that are closed, and what was used of them.")
@with_key
@as_json
def list_(place: Place, everything: bool, as_json: bool) -> None:
    """List the leases that are open.

    --all tells of those of the last two days why each was closed, and how much of it was used: so the policy's seconds
    and operations can be set to what reads need.
    """
    from lever.envelopes import ask

    answer = ask(place, "/admin/lease_list", "lease_list", {})
    found, closed = answer.get("leases") or [], (answer.get("closed") or []) if everything else []
    if as_json:
        return show.data({"leases": found} | ({"closed": closed} if everything else {}))
    show.table(_HEADERS, [_row(one) for one in found]) if found else show.say("no lease is open")
    if closed:
        show.table(_ENDED_HEADERS, [_ended(one) for one in closed])


@lease.command(epilog=examples(f"lever lease close {_EXAMPLE}"))
@click.argument("id", type=ID)
@with_key
@as_json
def close(place: Place, id: DirectiveId, as_json: bool) -> None:
    """Close a lease early.

    One that is closed already is no error; exit 3 where there is none of this id.
    """
    from lever.envelopes import change

    answer = change(place, "/admin/lease_close", "lease_close", {"id": id})
    if as_json:
        show.data(answer)
    if not answer.get("closed") and not answer.get("known", True):
        raise CliError(f"there is no lease {id}", hint="lever lease list --all", exit=Exit.REFUSED)
    if not as_json:
        show.put(f"closed {id}" if answer.get("closed") else f"no lease {id} is open")


def _terms(place: Place, agent: Cn, account: str) -> tuple[int, int]:
    """The seconds and operations that the policy in force has for this account. Raises CliError where it has none."""
    from lever import in_force

    known = in_force.terms(in_force.layers(place, agent), account)
    if known is None:
        raise CliError(f"the instance's policy knows no account {account}", hint="lever policy show", exit=Exit.REFUSED)
    if known.sensitive:
        raise CliError(
            f"account {account} is sensitive and has no lease: each read is its own act",
            hint="lever request list, once the agent has asked",
            exit=Exit.REFUSED,
        )
    return known.lease_seconds, known.lease_operations


def _told(answer: dict[str, Any], action: LeaseAction, deprecated: bool, as_json: bool) -> None:
    if deprecated:
        show.warn(f"--minutes is deprecated and gone in 2.0; this lease lasts {action.ttl_seconds} seconds")
    if as_json:
        told = answer | {"seconds": action.ttl_seconds, "operations": action.ops}
        return show.data(told | ({"deprecated": "minutes"} if deprecated else {}))
    show.facts(
        {"lease": str(answer.get("id")), "seconds": str(action.ttl_seconds), "operations": str(action.ops)}
        | ({"deprecated": "minutes"} if deprecated else {})
    )


def _ended(one: dict[str, Any]) -> tuple[str, ...]:
    agent = one.get("agent") or {}
    whose = f"{agent.get('cn')}/{agent.get('generation')}"
    used = f"{one.get('used')}/{one.get('operations')}", f"{one.get('used_s')}/{one.get('seconds')}"
    return (str(one.get("lease")), whose, str(one.get("account")), *used, str(one.get("reason")))


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    agent = one.get("agent") or {}
    used = f"{one.get('used')}/{one.get('operations')}"
    begun = "" if one.get("first_read_at") else " (no read yet)"
    whose = f"{agent.get('cn')}/{agent.get('generation')}"
    return (str(one.get("lease")), whose, str(one.get("account")), used, f"{one.get('closes_at')}{begun}")
