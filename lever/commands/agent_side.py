"""`lever agent enrol|renew|consume|check|report|inbox|mcp`: what runs beside an agent, from bundle or identity folder.

What does the work is imported by the command that needs it: TLS and X.509 would slow every other command down.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from functools import partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from broker.errors import Malformed
from broker.wire import bundle as wire_bundle
from broker.wire import pointer, times
from broker.wire.bodies import OUTCOMES
from broker.wire.names import DirectiveId, Instant
from lever import show
from lever.commands import agent_tools
from lever.exits import CliError, Exit
from lever.groups import examples
from lever.params import ID, INSTANT, as_json, with_identity

if TYPE_CHECKING:
    from lever.agent.answers import Consumed
    from lever.agent.enrolment import Done

_MAX_BUNDLE_BYTES = 65536
_BUNDLE = "LEVER_BUNDLE"


def register(group: click.Group) -> None:
    """Hang the agent's side into `lever agent`."""
    for command in (enrol, renew, consume, check, report, inbox, agent_tools.tools, agent_tools.call, mcp, skill):
        group.add_command(command)


def _bundle_bytes(file: BinaryIO | None) -> bytes:
    """From the file, or for a container that is given its secrets so, from the environment."""
    if file is not None:
        return file.read(_MAX_BUNDLE_BYTES + 1)
    if text := os.environ.get(_BUNDLE):
        return os.fsencode(text)
    raise click.UsageError(f"expected --bundle FILE, or the bundle's text in the variable {_BUNDLE}")


def _attempt(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    return secrets.token_hex(16) if value is None else value


def _now() -> Instant:
    return Instant(time.time_ns() // 1000)


@click.command(
    epilog=examples(
        "lever agent enrol --bundle bootstrap.json",
        "lever agent invite worker-a --json | ssh box lever agent enrol --bundle -",
        "LEVER_BUNDLE=$(cat bootstrap.json) lever agent enrol",
    ),
)
@click.option(
    "--bundle",
    type=click.File("rb"),
    metavar="FILE",
    help=f"The operator's bundle; - reads it from stdin. Else its text is taken from the variable {_BUNDLE}.",
)
@with_identity
@as_json
def enrol(bundle: BinaryIO | None, path: Path, as_json: bool) -> None:
    """Become the agent that the operator invited.

    A key is made here and never leaves this machine; the broker certifies it. Should the answer be lost, run the same
    command again within a minute: it uses the same key. An identity that the folder holds already is replaced only
    once the new one is complete.
    """
    from lever.agent import enrolment
    from lever.agent.folder import IdentityFolder

    try:
        value = wire_bundle.parse(_bundle_bytes(bundle))
        done = enrolment.enrol(IdentityFolder(path), value, now=_now())
    except Malformed as error:
        raise CliError(
            f"expected a bundle as `lever agent invite` writes it, found: {error}",
            hint="ask the operator for the file: lever agent invite NAME --out bootstrap.json",
            exit=Exit.CORRUPT_FILE,
        ) from error
    _tell(done, path, as_json)


@click.command(epilog=examples("lever agent renew", "lever agent renew --loop"))
@with_identity
@click.option("--force", is_flag=True, help="Renew now, also before half of the certificate's life is over.")
@click.option("--loop", is_flag=True, help="Go on for ever: renew at half-life, try again within minutes.")
@as_json
def renew(path: Path, force: bool, loop: bool, as_json: bool) -> None:
    """Renew the certificate, once half of its life is over.

    Run it with --loop beside the agent, or from cron. It ends when the operator has revoked the agent or the
    certificate has ended: then only a new invite helps.
    """
    from lever.agent import enrolment, renewal
    from lever.agent.folder import IdentityFolder

    if loop and force:
        raise click.UsageError("--loop keeps to half-life: use --force without it")
    if not loop:
        return _tell(enrolment.renew(IdentityFolder(path), now=_now(), force=force), path, as_json)
    renewal.keep_renewed(
        IdentityFolder(path),
        clock=_now,
        draw=secrets.SystemRandom().random,
        sleep=time.sleep,
        say=show.say,
        renewed=lambda done: _tell(done, path, as_json),
    )


@click.command(
    epilog=examples(
        "lever agent consume 0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55",
        "lever agent consume 0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55 --json",
    ),
)
@click.argument("id", type=ID)
@with_identity
@click.option(
    "--attempt",
    type=ID,
    callback=_attempt,
    metavar="KEY",
    help="The key of an earlier try whose answer was lost; without it each run makes its own.",
)
@as_json
def consume(id: DirectiveId, path: Path, attempt: str, as_json: bool) -> None:
    """Fetch what the operator signed, once.

    A lost answer is asked for again under the same attempt key. Everything that is not there for this agent now is
    the same miss: `not found`, exit 3.
    """
    from lever.agent import consuming
    from lever.agent.folder import IdentityFolder
    from lever.agent.session import connected

    with connected(IdentityFolder(path), _now()) as door:
        answer = consuming.consume(door, id, attempt, sleep=time.sleep)
    show.data(answer.members) if as_json else _show_consumed(answer)


@click.command(epilog=examples("lever agent check 0d1f7c3e-6a58-4a5e-9f3b-1f2f6f1c9a55"))
@click.argument("id", type=ID)
@with_identity
@as_json
def check(id: DirectiveId, path: Path, as_json: bool) -> None:
    """Ask for the state of a directive.

    Only of one that is this agent's own, and without consuming it; anything else is the miss: `not found`, exit 3.
    """
    from lever.agent.folder import IdentityFolder
    from lever.agent.session import connected

    with connected(IdentityFolder(path), _now()) as door:
        state = door.check(id)
    show.data({"id": id, "state": state}) if as_json else show.put(state)


@click.command(epilog=examples('lever agent report ID done --note "Deployed as asked."'))
@click.argument("id", type=ID)
@click.argument("outcome", type=click.Choice(OUTCOMES))
@click.option("--note", default="", metavar="TEXT", help="A few words for the operator, at most 1024 bytes.")
@with_identity
@as_json
def report(id: DirectiveId, outcome: str, note: str, path: Path, as_json: bool) -> None:
    """Tell the operator what came of a directive.

    Once, for a directive that this agent consumed. It is shown as the agent's own unverified word.
    """
    from lever.agent.folder import IdentityFolder
    from lever.agent.session import connected

    with connected(IdentityFolder(path), _now()) as door:
        told = door.report(id, outcome, note)
    show.data({"id": id, "reported": told}) if as_json else show.say(f"reported: {told}")


@click.command(epilog=examples("lever agent mcp", "lever agent mcp --identity /run/agent/identity"))
@with_identity
def mcp(path: Path) -> None:
    """Serve the agent's tools to its harness.

    The directive tools, and those that the broker has for this agent. The harness starts it and speaks MCP over
    standard input and output. It listens nowhere, renews the certificate while it runs, and goes on when the broker
    restarts or a new bundle replaces the identity.
    """
    from threading import Thread

    from lever.agent import renewal
    from lever.agent.folder import IdentityFolder
    from lever.agent.mcp import server
    from lever.agent.mcp.calls import Desk

    folder, draw = IdentityFolder(path), secrets.SystemRandom().random
    keep = partial(renewal.stay_renewed, folder, clock=_now, draw=draw, sleep=time.sleep, say=show.say)
    Thread(target=keep, name="renewal", daemon=True).start()
    server.serve(Desk(folder, _now, lambda: secrets.token_hex(16), time.sleep), version("lever-broker"))
    # A call may go on, in its thread, for minutes: nobody is there to be told, and the broker ends it by itself.
    os._exit(Exit.DONE)


@click.command(
    epilog=examples("lever agent inbox", "lever agent inbox --wait 30 --after 2026-01-31T09:00:00Z --json"),
)
@with_identity
@click.option(
    "--wait",
    type=click.IntRange(0, 30),
    default=0,
    metavar="S",
    help="Wait up to S seconds (30 at most) for a pointer.",
)
@click.option("--after", type=INSTANT, metavar="TIME", help="Only pointers newer than this `notified_at`.")
@as_json
def inbox(path: Path, wait: int, after: Instant | None, as_json: bool) -> None:
    """List what waits for this agent.

    Directives, and its own requests that the operator has answered or that expired. Pointers only, nothing of what
    they say.
    """
    from lever.agent import answers
    from lever.agent.folder import IdentityFolder
    from lever.agent.session import connected

    with connected(IdentityFolder(path), _now()) as door:
        waiting = door.inbox(wait, after, requests=True)
    if as_json:
        return show.data(answers.inbox(waiting))
    for one in waiting:
        show.put(pointer.sentence(one.id, one.about))
    if not waiting:
        show.say("nothing is waiting")


@click.command(epilog=examples("lever agent skill > .claude/skills/operator-directives/SKILL.md"))
@as_json
def skill(as_json: bool) -> None:
    """Print the text that teaches a model the rule.

    Only a consume that it emitted itself, this turn, carries the operator's authority. The text is Markdown with a
    heading that agent harnesses read: put it where yours looks for skills, or into its standing instructions.
    """
    text = resources.files("lever.agent").joinpath("skill.md").read_text("utf-8")
    show.data({"skill": text}) if as_json else click.echo(text, nl=False)


def _tell(done: Done, path: Path, as_json: bool) -> None:
    """What an enrolment or renewal came to."""
    from lever.agent.enrolment import Outcome, half_life

    holder = done.identity.holder
    end, next_at = times.show(holder.not_after_at), times.show(half_life(done.identity))
    if as_json:
        return show.data(
            {
                "outcome": str(done.outcome),
                "cn": holder.cn,
                "instance": holder.instance,
                "generation": holder.generation,
                "broker_url": done.identity.url,
                "not_after": end,
                "renew_at": next_at,
                "identity": str(path),
            }
        )
    name = holder.cn if holder.generation is None else f"{holder.cn}, generation {holder.generation}"
    show.say(f"{done.outcome}: {name}, at {done.identity.url}")
    show.say(f"the certificate in {path} ends at {end}, and is to be renewed from {next_at}")
    if done.outcome is Outcome.ENROLLED:
        show.say("next, in the project's folder: lever agent install claude-code --write")
        show.say("its MCP server renews the certificate; without it: lever agent renew --loop")


def _show_consumed(answer: Consumed) -> None:
    """The answer for people: one fact a line, a text indented so that it can't pose as a line of ours."""
    members, action = answer.members, answer.members.get("action")
    facts = {"directive": str(answer.id), "kind": answer.kind}
    beside = {n: v for n, v in members.items() if n not in ("id", "action", "advisory_text")}
    for told in (action if isinstance(action, dict) else {}, beside):
        facts |= {name: _plain(value) for name, value in told.items() if name not in facts}
    show.facts(facts)
    if isinstance(text := members.get("advisory_text"), str):
        for line in text.split("\n"):
            show.below(line)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else show.safe_json(json.dumps(value, ensure_ascii=False))
