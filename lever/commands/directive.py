"""`lever directive`: say something to an agent that it can tell from an injection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from broker.errors import Malformed
from broker.wire import bodies, names, statement
from broker.wire.names import NAMESPACE_DIRECTIVE, Cn, DirectiveId, Generation, Instant
from broker.wire.statement import Target
from lever import directives, draft, show, signer
from lever.draft import Window
from lever.exits import CliError, Exit
from lever.groups import Story, examples
from lever.new_file import new_file
from lever.params import CN, DURATION, GENERATION, ID, INSTANT, PATH, as_json, with_key, with_keys, with_socket
from lever.where import Place

if TYPE_CHECKING:
    from lever.line import Line

_STATES = ("scheduled", *("active", "consumed", "revoked", "invalidated", "expired"))
_TOOL_CALL = """'{"kind":"tool_call","tool":"files","op":"read_file","args":{}}'"""


@click.group(cls=Story)
def directive() -> None:
    """Sign directives, send them, see what came of them.

    A directive is a statement that you sign with your SSH key. The broker checks the exact bytes, tells the agent
    an id and nothing more, and hands the action out once, to that agent alone.
    """


def _composed(function: Any) -> Any:
    """What a statement is made of, as the arguments agent, instruction, action, expires_s and not_before."""
    for option in (
        click.option("--not-before", type=INSTANT, metavar="RFC3339", help="Hold it back until then."),
        click.option(
            "--expires",
            "expires_s",
            type=DURATION,
            metavar="DUR",
            help="How long it holds, from --not-before or now. Else directive_expiry.",
        ),
        click.option("--action", metavar="JSON", help="One exact tool call or approval, as JSON."),
        click.option("--instruction", metavar="TEXT", help="Advice in words; it never overrides an agent's refusal."),
        click.argument("agent", type=CN),
    ):
        function = option(function)
    return function


@directive.command(
    epilog=examples(
        'lever directive send worker-a --instruction "Finish the report first."',
        f"lever directive send worker-a --wait --action \\\n    {_TOOL_CALL}",
        'lever directive send worker-a --instruction "Stop." \\\n    --not-before 2026-01-31T17:00:00Z',
    )
)
@_composed
@click.option("--wait", is_flag=True, help="Go on until it is consumed or has ended, and say so (one more signature).")
@click.option("--yes", is_flag=True, help="Sign without asking.")
@with_key
@as_json
def send(
    place: Place,
    agent: Cn,
    instruction: str | None,
    action: str | None,
    expires_s: int | None,
    not_before: Instant | None,
    wait: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Sign a directive for an agent and send it.

    The exact bytes are shown on standard error before they are signed. On a terminal you are asked first; without
    one, or with --yes, the command goes on. With --wait the exit status is 0 once the agent consumed it, and 3 if
    it ended otherwise.
    """
    from lever.line import Line

    draft.must_be_an_agent(agent)
    what, key = draft.action_of(instruction, action), place.key
    line = Line(place.socket)
    line.meet(place.instance)
    target = Target(agent, _generation(line, agent))
    raw = draft.drafted(place.instance, target, what, Window(not_before, expires_s or place.expiry_s), draft.now())
    _sent(line.post("/directive/send", _signed(raw, key, yes)), as_json)
    if wait:
        _wait(place, statement.read(raw).directive_id, as_json)


@directive.command("list", epilog=examples("lever directive list", "lever directive list --state active --json"))
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@with_key
@as_json
def list_(place: Place, state: str | None, as_json: bool) -> None:
    """List directives: state, whether the agent was told.

    One that was told and stays active was noticed by nobody yet, or the agent chose not to act on it.
    """
    from lever.envelopes import ask

    answer = ask(place, "/directive/list", "list", {"state": state} if state else {})
    if as_json:
        return show.data(answer)
    found = answer.get("directives") or []
    if found:
        show.table(directives.HEADERS, [directives.row(one, draft.now()) for one in found])
    else:
        show.say(f"no directive is {state}" if state else "no directives")


@directive.command("show", epilog=examples("lever directive show 0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"))
@click.argument("id", type=ID)
@with_key
@as_json
def show_(place: Place, id: DirectiveId, as_json: bool) -> None:
    """Show all that the broker tells of one directive."""
    from lever.envelopes import ask

    found = ask(place, "/directive/list", "list", {"id": id}).get("directives") or []
    if not found:
        raise CliError(f"the broker knows no directive {id}", hint="lever directive list", exit=Exit.REFUSED)
    show.data(found[-1]) if as_json else show.facts(directives.facts(found[-1], draft.now()))


@directive.command(epilog=examples("lever directive revoke 0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"))
@click.argument("id", type=ID)
@with_key
@as_json
def revoke(place: Place, id: DirectiveId, as_json: bool) -> None:
    """Take a directive back before it is consumed."""
    from lever.envelopes import change

    answer = change(place, "/directive/revoke", "revoke", {"id": id})
    if as_json:
        show.data(answer)
    if not answer.get("known", True):
        text = f"nothing to revoke: the broker knows no directive {id}"
        raise CliError(text, hint="lever directive list shows those that it knows", exit=Exit.REFUSED)
    if not answer.get("revoked"):
        raise CliError(
            f"nothing to revoke: no directive {id} is active", hint=f"lever directive show {id}", exit=Exit.REFUSED
        )
    if not as_json:
        show.put(f"revoked {id}")


@directive.command(
    epilog=examples("lever directive selftest", "lever directive selftest --key keys/operator-1 --key keys/operator-2")
)
@with_keys
@as_json
def selftest(place: Place, keys: tuple[Path, ...], as_json: bool) -> None:
    """Test whether your signatures go the whole way.

    Do it for each key, before you need it. Signs a statement that no agent can get and has the broker judge it, for
    each --key. Exit 6 if one is not accepted. An emergency stop that is on is told, and is no failure.
    """
    from lever.line import Line

    results, first = [], None
    line = Line(place.socket)
    line.meet(place.instance)
    for key in keys or (place.key,):
        try:
            results.append({"key": str(key), **_tested(line, place, key)})
        except CliError as refusal:
            error = _explained(line, refusal)
            first = first or error
            results.append({"key": str(key), "ok": False, "error": error.text, "hint": error.hint})
    show.data({"ok": first is None, "keys": results}) if as_json else _show_results(results)
    if any(result.get("stopped") for result in results):
        show.warn("the emergency stop is on: the way is good, and nothing is handed out until lever resume")
    if first:
        failed = sum(not result["ok"] for result in results)
        raise CliError(f"{failed} of {len(results)} keys did not pass", hint=first.hint, exit=first.exit)


@directive.command(
    epilog=examples(
        'lever directive sign worker-a --generation 3 --instruction "Stop." \\\n'
        "    --instance demo --key ~/.ssh/id_ed25519 --out stop.json",
        "lever directive submit stop.json",
    )
)
@_composed
@click.option("--generation", type=GENERATION, metavar="N", help="The agent's generation; else the broker is asked.")
@click.option(
    "--out", type=PATH, metavar="FILE", help="Where to write it, 0600, never over another file. Else standard output."
)
@click.option("--yes", is_flag=True, help="Sign without asking.")
@with_key
@as_json
def sign(
    place: Place,
    agent: Cn,
    instruction: str | None,
    action: str | None,
    expires_s: int | None,
    not_before: Instant | None,
    generation: Generation | None,
    out: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Sign a directive, to be submitted from elsewhere.

    For a key on one machine and the broker on another: `submit` sends what this writes. Writes {"statement":
    base64, "signature": base64}, with or without --json. It ends as any directive does: mind --expires.
    """
    draft.must_be_an_agent(agent)
    what, key = draft.action_of(instruction, action), place.key
    target = Target(agent, generation or _asked_generation(place, agent))
    raw = draft.drafted(place.instance, target, what, Window(not_before, expires_s or place.expiry_s), draft.now())
    if out is None:
        return show.data(_signed(raw, key, yes))
    with new_file(out) as file:
        file.write(json.dumps(_signed(raw, key, yes)).encode() + b"\n")
    if as_json:
        return show.data({"file": str(out), "id": statement.read(raw).directive_id})
    show.say(f"wrote {out}; next, where the broker is: lever directive submit {out}")


@directive.command(
    epilog=examples("lever directive submit stop.json", "lever directive sign ... | lever directive submit -")
)
@click.argument("file", type=click.File("rb"))
@with_socket
@as_json
def submit(place: Place, file: BinaryIO, as_json: bool) -> None:
    """Send a directive that `sign` wrote. FILE is - for standard input.

    What it says is shown first. It was signed already, so nothing is asked.
    """
    from lever.line import Line, signed_pair

    try:
        pair = bodies.signed_pair(file.read(bodies.PAIR_MAX_BYTES + 1), "statement")
        draft.review(pair.raw, None)
    except Malformed as error:
        raise CliError(
            f"expected a directive as `lever directive sign` writes it, found: {error}",
            hint="lever directive sign AGENT ... --out FILE",
            exit=Exit.CORRUPT_FILE,
        ) from error
    body = signed_pair("statement", pair.raw, pair.signature)
    _sent(Line(place.socket).post("/directive/send", body), as_json)


def _generation(line: Line, agent: Cn) -> Generation:
    """Which enrolment of the agent the broker holds now."""
    found = line.get("/directive/resolve", agent=agent)
    if found.get("cn") != agent:
        raise CliError(f"asked for {agent}, the broker answers for {found.get('cn')}", exit=Exit.REFUSED)
    return names.generation(found.get("generation"))


def _asked_generation(place: Place, agent: Cn) -> Generation:
    from lever.line import Line

    try:
        line = Line(place.socket)
        line.meet(place.instance)
        return _generation(line, agent)
    except CliError as error:
        if error.exit is not Exit.NOT_REACHABLE:
            raise
        raise CliError(error.text, hint="say which generation is meant: --generation N", exit=error.exit) from error


def _signed(raw: bytes, key: Path, yes: bool) -> dict[str, Any]:
    """The body that carries these bytes, once they were shown and nobody said no."""
    from lever.line import signed_pair

    draft.review(raw, key)
    draft.consent(yes)
    return signed_pair("statement", raw, signer.sign(key, NAMESPACE_DIRECTIVE, raw))


def _tested(line: Line, place: Place, key: Path) -> dict[str, Any]:
    from lever.line import signed_pair

    raw = draft.selftest(place.instance, draft.now())
    show.say(f"signing with {key}:")
    show.json_text(raw.decode())
    signature = signer.sign(key, NAMESPACE_DIRECTIVE, raw)
    return line.post("/directive/selftest", signed_pair("statement", raw, signature))


def _explained(line: Line, error: CliError) -> CliError:
    """A selftest's refusal with a way out: the broker's own hint for a bad signature is to run a selftest."""
    from lever import clocks

    if error.hint == "lever directive selftest":
        return CliError(error.text, hint="lever doctor", exit=error.exit)
    return clocks.blamed(line, error)


def _show_results(results: list[dict[str, Any]]) -> None:
    for result in results:
        if not result.get("ok"):
            show.verdict("FAIL", f"{result['key']}: {result['error']}", good=False)
            continue
        show.verdict("ok", f"{result['key']}: {result.get('fingerprint')}", good=True)
        for text in result.get("warnings") or []:
            show.below(f"warning: {text}")


def _sent(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        return show.data(answer)
    scheduled = bool(answer.get("scheduled"))
    waits = "when its window opens" if scheduled else "not yet; it is tried again"
    waits = "when it is resumed" if answer.get("paused") else waits
    waits = "after lever resume: the operator stopped everything" if answer.get("stopped") else waits
    told = "yes" if answer.get("delivered") else waits
    show.facts({"id": str(answer.get("id")), "told": told, "enforced": directives.enforced(answer)})


def _wait(place: Place, id: DirectiveId, as_json: bool) -> None:
    """Tell what happens to the directive until it has ended."""
    from lever.envelopes import watch

    try:
        for event in watch(place, {"id": id}):
            show.data(event) if as_json else show.put(directives.told(event))
            if end := directives.end_of(event):
                break
        else:
            raise CliError(
                "the broker's report ended before the directive did (it lasts 15 minutes at most)",
                hint=f"lever directive show {id}",
                exit=Exit.NOT_REACHABLE,
            )
    except KeyboardInterrupt:
        show.say(f"no longer waiting; the directive stays: lever directive show {id}")
        raise
    if end != "consumed":
        raise CliError(f"the directive was not consumed: {end}", hint=f"lever directive show {id}", exit=Exit.REFUSED)
