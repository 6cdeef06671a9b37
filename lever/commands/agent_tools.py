"""`lever agent tools|call`: brokered tools by hand or from a script, with an agent's own identity."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click

from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.names import DirectiveId, Instant
from lever import show
from lever.exits import CliError, Exit
from lever.groups import examples
from lever.params import ID, as_json, with_identity


def _arguments(context: click.Context, parameter: click.Parameter, value: str) -> dict[str, Any]:
    raw = sys.stdin.buffer.read(strict_json.MAX_BYTES + 1) if value == "-" else value.encode("utf-8", "surrogateescape")
    try:
        return strict_json.as_object(strict_json.parse(raw, "ARGUMENTS"), "ARGUMENTS")
    except Malformed as error:
        raise click.BadParameter(f"expected one JSON object, found: {error}", context, parameter) from error


def _now() -> Instant:
    return Instant(time.time_ns() // 1000)


@click.command(epilog=examples("lever agent tools", "lever agent tools --json"))
@with_identity
@as_json
def tools(path: Path, as_json: bool) -> None:
    """List the brokered tools that this agent may call or ask for.

    In the words that the operator accepted. The list decides nothing: each call is judged when it is made.
    """
    from lever.agent.folder import IdentityFolder
    from lever.agent.session import connected

    with connected(IdentityFolder(path), _now()) as door:
        found = door.tools()
    if as_json:
        return show.data({"tools": found})
    if not found:
        return show.say("no tool is brokered for this agent")
    show.table(("TOOL", "WHAT IT DOES"), [(str(tool["name"]), _first_line(tool.get("description"))) for tool in found])


@click.command(
    epilog=examples(
        'lever agent call calendar__list_events \'{"day": "2026-01-31"}\'',
        "lever agent call mail__send - --wait 30 --json < message.json",
        'lever agent call request_status \'{"request_id": "b7d5"}\'',
    ),
)
@click.argument("name", metavar="NAME")
@click.argument("arguments", metavar="[ARGUMENTS]", default="{}", callback=_arguments)
@with_identity
@click.option(
    "--wait",
    type=click.IntRange(0, 30),
    default=0,
    metavar="S",
    help="Wait up to S seconds (30 at most) for the operator, if they are to be asked.",
)
@click.option(
    "--call-id",
    type=ID,
    metavar="KEY",
    help="The key of an earlier call whose answer was lost; without it each run makes its own.",
)
@as_json
def call(
    name: str, arguments: dict[str, Any], path: Path, wait: int, call_id: DirectiveId | None, as_json: bool
) -> None:
    """Call a brokered tool, once.

    ARGUMENTS is a JSON object, or - to read it from stdin. A call that the operator has to allow is asked for and
    refused for now: `consent_required`, exit 3, as every other refusal and failure. Once it is allowed, make the same
    call again. A lost answer is asked for again under the same call id.
    """
    from lever.agent import calling
    from lever.agent.folder import IdentityFolder
    from lever.agent.session import connected

    key = call_id or secrets.token_hex(16)
    with connected(IdentityFolder(path), _now()) as door:
        result = calling.call(door, name, arguments, key, wait, sleep=time.sleep)
    if as_json:
        show.data(result)
    if result.get("isError") is True:
        raise _refused(result, name, key)
    if not as_json:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    """What the tool said, its hidden characters spelled."""
    for text in _texts(result):
        for line in text.split("\n"):
            show.put(line)


def _texts(result: dict[str, Any]) -> list[str]:
    """The answer's blocks as text: one that is none is told by its kind. --json has it whole."""
    content = result.get("content")
    blocks = [block if isinstance(block, dict) else {} for block in content] if isinstance(content, list) else []
    if not blocks and "structuredContent" in result:
        return [json.dumps(result["structuredContent"], ensure_ascii=False)]
    told = (block.get("text") if block.get("type") == "text" else None for block in blocks)
    return [
        text if isinstance(text, str) else f"[{block.get('type')} {block.get('mimeType') or ''}]".replace(" ]", "]")
        for text, block in zip(told, blocks, strict=True)
    ]


def _refused(result: dict[str, Any], name: str, key: str) -> CliError:
    """A result with isError: the broker's refusal by its code, or what the tool itself said."""
    said = result.get("structuredContent")
    if isinstance(said, dict) and isinstance(code := said.get("code"), str):
        lines, request = _told_once(code, str(said.get("message"))).split("\n"), said.get("request_id")
        asked = shlex.quote(json.dumps({"request_id": request}))
        hint = {
            "consent_required": f"how it stands: lever agent call request_status {asked}",
            "in_progress": f"later: lever agent call {shlex.quote(name)} ARGUMENTS --call-id {key}",
        }.get(code, "")
    else:
        lines, hint = f"the tool failed: {' '.join(_texts(result))}".split("\n"), ""
    return CliError(lines[0], hint=hint, exit=Exit.REFUSED, more=lines[1:])


def _told_once(code: str, message: str) -> str:
    """`denied_by_default: in no list`, where the message begins with the code's own words, or with its subject."""
    whole, last = code.replace("_", " "), code.rpartition("_")[2]
    return f"{code}: {message.removeprefix(f'{whole}: ').removeprefix(f'{last}: ')}"


def _first_line(text: object) -> str:
    return text.strip().partition("\n")[0] if isinstance(text, str) else ""
