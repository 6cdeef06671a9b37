"""`lever request`: what agents ask for, and the operator's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from broker.errors import Malformed
from broker.wire import times
from broker.wire.names import NAMESPACE_DIRECTIVE, DirectiveId
from broker.wire.statement import LeaseAction
from lever import directives, draft, show, signer
from lever.draft import Window
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.params import DURATION, ID, as_json, with_key, with_socket
from lever.where import Place

if TYPE_CHECKING:
    from lever.approval import Waiting

_HEADERS = ("REQUEST", "STATE", "AGENT", "FOR", "WHAT")
_ACT_HEADERS = ("ACT", "STATE", "AGENT", "WHAT", "UNTIL")
_REGIMES = {"act": "one call", "lease": "reads"}
_EXAMPLE = "0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"


@click.group(cls=Story)
def request() -> None:
    """See what agents ask for, and answer.

    A call that lacks nothing but your consent waits here for ten minutes. You sign exactly the bytes that will be
    executed, once; nothing is ever approved by a time-out.
    """


@request.command("list", epilog=examples("lever request list", "lever request list --all --json"))
@click.option("--all", "everything", is_flag=True, help="Also those that were answered, and the acts that were signed.")
@with_key
@as_json
def list_(place: Place, everything: bool, as_json: bool) -> None:
    """List what waits for your answer.

    With --all, one that you approved shows what came of it: the call's outcome, or how the act ended that no call used.
    """
    from lever.envelopes import ask

    answer = ask(place, "/admin/request_list", "request_list", {"all": "1"} if everything else {})
    found = [one for one in answer.get("requests") or [] if everything or one.get("state") == "pending"]
    acts = (answer.get("acts") or []) if everything else []
    if as_json:
        return show.data({"requests": found} | ({"acts": acts} if everything else {}))
    if found:
        show.table(_HEADERS, [_row(one) for one in found])
    else:
        show.say("no requests" if everything else "nothing waits for you")
    if acts:
        show.table(_ACT_HEADERS, [_act(one) for one in acts])


@request.command("show", epilog=examples(f"lever request show {_EXAMPLE}"))
@click.argument("id", type=ID)
@with_socket
@as_json
def show_(place: Place, id: DirectiveId, as_json: bool) -> None:
    """Show one request with its full arguments.

    They are held against their digest. What is long is shown by its size and digest, and in full below. The id is
    enough to see it: nothing is signed.
    """
    from lever import approval
    from lever.line import Line

    waiting = approval.fetched(Line(place.socket), id)
    if as_json:
        value = waiting.arguments.value if waiting.arguments else None
        return show.data(waiting.told | {"arguments": value})
    show.facts(_facts(waiting))
    show.barred(approval.lines(waiting))
    for title, whole in approval.long_values(waiting):
        show.put(f"{title}:")
        show.barred(whole)


@request.command(
    epilog=examples(f"lever request approve {_EXAMPLE}", f"lever request approve {_EXAMPLE} \\\n    --expires 2m --yes")
)
@click.argument("id", type=ID)
@click.option(
    "--expires", "expires_s", type=DURATION, metavar="DUR", help="How long the call may be made. Else directive_expiry."
)
@click.option("--yes", is_flag=True, help="Sign without asking.")
@with_key
@as_json
def approve(place: Place, id: DirectiveId, expires_s: int | None, yes: bool, as_json: bool) -> None:
    """Allow exactly what is asked for.

    The exact bytes are fetched, their digest is computed here, and everything is shown before you sign it. Exit 6,
    and nothing is signed, if anything differs.
    """
    from lever import approval
    from lever.envelopes import met
    from lever.line import signed_pair

    line, key = met(place), place.key
    waiting = approval.fetched(line, id)
    _must_wait(waiting)
    action = waiting.approval if waiting.regime == "act" else _lease(waiting)
    window = Window(None, expires_s or place.expiry_s)
    raw = draft.drafted(place.instance, waiting.target, action, window, draft.now())
    _review(waiting, yes)
    draft.review(raw, key)
    draft.consent(yes)
    body = signed_pair("statement", raw, signer.sign(key, NAMESPACE_DIRECTIVE, raw))
    answer = line.post("/directive/send", body)
    if as_json:
        return show.data(answer | _terms(action))
    show.put(f"approved {id}")
    show.say(f"it answers with {answer.get('id')}; the agent is told")


@request.command(epilog=examples(f'lever request deny {_EXAMPLE} \\\n    --note "Ask the owner of the branch first."'))
@click.argument("id", type=ID)
@click.option("--note", default="", metavar="TEXT", help="Words to the agent, 1024 bytes at most.")
@with_key
@as_json
def deny(place: Place, id: DirectiveId, note: str, as_json: bool) -> None:
    """Say no.

    The agent is told, and the same call can't be asked again for ten minutes.
    """
    from lever.envelopes import change

    answer = change(place, "/admin/request_deny", "request_deny", {"id": id} | ({"note": note} if note else {}))
    show.data(answer) if as_json else show.put(f"denied {id}")


@request.command(epilog=examples(f"lever request revoke {_EXAMPLE}"))
@click.argument("act", type=ID)
@with_key
@as_json
def revoke(place: Place, act: DirectiveId, as_json: bool) -> None:
    """Take back an act that you signed and that no call has used yet.

    A call that is running is not stopped; but if it turns out that it was never sent, the act is gone all the same.
    ACT is its id, as `lever request list --all` and `approve` tell it.
    """
    from lever.envelopes import change

    answer = change(place, "/admin/act_revoke", "act_revoke", {"id": act})
    if as_json:
        show.data(answer)
    if not answer.get("revoked"):
        raise CliError(f"nothing to revoke: no act {act} waits", hint="lever request list --all", exit=Exit.REFUSED)
    if not as_json:
        show.put(f"revoked {act}")


def _must_wait(waiting: Waiting) -> None:
    if waiting.state != "pending":
        raise CliError(
            f"this request is {waiting.state} already; nothing was signed",
            hint=f"lever request show {waiting.id}",
            exit=Exit.REFUSED,
        )
    if waiting.regime not in _REGIMES:
        raise CliError(
            f"this version knows no requests for {waiting.regime}", hint="lever --version", exit=Exit.REFUSED
        )


def _lease(waiting: Waiting) -> LeaseAction:
    """As long as the policy lets it be, by what came with the request: nothing has to be signed to read it."""
    account, known = waiting.account, waiting.terms
    if known is None or known.sensitive:
        why = (
            "the instance's policy knows no such account"
            if known is None
            else "it is sensitive: each read is its own act"
        )
        raise CliError(f"no lease of account {account}: {why}", hint="lever policy show", exit=Exit.REFUSED)
    return waiting.lease(min(known.lease_seconds, waiting.seconds or known.lease_seconds), known.lease_operations)


def _review(waiting: Waiting, yes: bool) -> None:
    """Everything that the statement names by its digest alone. Long values are paged where somebody is asked."""
    from lever import approval

    show.say(f"{waiting.target.cn} asks for {_REGIMES[waiting.regime]}:")
    show.barred(approval.lines(waiting), words=True)
    if versions := approval.policies(waiting):
        show.say(f"    judged under policy {versions}")
    if waiting.reason:
        show.say(f"    asked because: {waiting.reason}")
    for title, whole in approval.long_values(waiting):
        show.say(f"{title}:")
        show.barred(whole, words=True) if yes else show.paged(whole)


def _terms(action: object) -> dict[str, Any]:
    return {"seconds": action.ttl_seconds, "operations": action.ops} if isinstance(action, LeaseAction) else {}


def _facts(waiting: Waiting) -> dict[str, str]:
    from lever import approval

    return {
        "request": waiting.id,
        "state": _state(waiting.told),
        "agent": f"{waiting.target.cn}, generation {waiting.target.generation}",
        "asks for": _REGIMES.get(waiting.regime, waiting.regime),
        "until": times.show(waiting.expires_at),
        "policy": approval.policies(waiting),
        "because": waiting.reason,
        "answered by": str(waiting.told.get("answer") or ""),
        "note": str(waiting.told.get("note") or ""),
    }


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    what = " ".join(str(one[name]) for name in ("tool", "account") if one.get(name))
    state = f"pending {_left(one)}" if one.get("state") == "pending" else _state(one)
    return (str(one.get("request")), state, _agent(one), _REGIMES.get(str(one.get("regime")), "-"), what)


def _state(one: dict[str, Any]) -> str:
    """Of one that was approved the word is its act's by now, unless that just waits."""
    state = str(one.get("state"))
    return f"approved, {state}" if one.get("answer") and state != "approved" else state


def _left(one: dict[str, Any]) -> str:
    try:
        return directives.span(times.parse(one.get("expires_at"), "expires_at") - draft.now())
    except Malformed:
        return ""


def _act(one: dict[str, Any]) -> tuple[str, ...]:
    what = " ".join(str(one[name]) for name in ("tool", "account") if one.get(name))
    return (str(one.get("act")), str(one.get("state")), _agent(one), what, str(one.get("expires_at")))


def _agent(one: dict[str, Any]) -> str:
    agent = one.get("agent") or {}
    return f"{agent.get('cn')}/{agent.get('generation')}"
