"""From the words of the command line to a statement's exact bytes, and the review of them before they are signed."""

from __future__ import annotations

import hashlib
import json
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from broker.wire import names, statement, strict_json, times
from broker.wire.names import Cn, DirectiveId, Generation, Instance, Instant
from broker.wire.statement import Action, Approval, BoundAction, Instruction, LeaseAction, Statement, Target
from broker.wire.strict_json import Fields
from broker.wire.times import SECOND
from lever import show
from lever.exits import CliError, Exit

_BOUND = frozenset(("kind", "tool", "op"))
_BOUND_OPTIONAL = frozenset(("args", "arg_binding", "uses"))


@dataclass(frozen=True, slots=True)
class Window:
    """When a directive holds: for expires_s seconds, from not_before on, or from now if that is None."""

    not_before: Instant | None
    expires_s: int


def action_of(instruction: str | None, written: str | None) -> Action:
    """The one action that --instruction or --action names. What can have one value only may be left out of the JSON."""
    if (instruction is None) == (written is None):
        raise CliError("expected one of --instruction and --action", hint='--instruction "Finish the report first."')
    if instruction is not None:
        return Instruction(instruction)
    members = strict_json.as_object(
        strict_json.parse((written or "").encode(errors="surrogateescape"), "--action"), "--action"
    )
    match members.get("kind"):
        case "tool_call":
            return _bound("tool_call", members)
        case "approval":
            return _bound("approval", members)
        case "instruction" if isinstance(text := members.get("text"), str) and len(members) == 2:
            return Instruction(text)
        case _:
            raise CliError(
                'expected --action to say "kind": "tool_call", "approval" or "instruction"',
                hint="""--action '{"kind":"tool_call","tool":"files","op":"read_file","args":{"path":"a.txt"}}'""",
            )


def _bound(kind: Literal["tool_call", "approval"], members: strict_json.JsonObject) -> BoundAction:
    fields = Fields(members, "action", _BOUND, _BOUND_OPTIONAL, prefix="action.")
    for name, only in (("arg_binding", "exact"), ("uses", 1)):
        if name in fields:
            fields.exactly(name, only)
    tool, op = (names.tool_word(fields.value(name), fields.path(name)) for name in ("tool", "op"))
    return BoundAction(kind, tool, op, fields.members("args"))


def now() -> Instant:
    """The wall clock, in whole seconds, so that what is signed reads well. It rounds down: never ahead of the clock."""
    return Instant(int(time.time()) * SECOND)


def drafted(instance: Instance, target: Target, action: Action, window: Window, now: Instant) -> bytes:
    """The exact bytes of a new statement, with a random id. Raises Malformed for what no broker would take."""
    opens = now if window.not_before is None else window.not_before
    return statement.encode(
        Statement(
            instance=instance,
            directive_id=DirectiveId(str(uuid.uuid4())),
            target=target,
            issued_at=now,
            not_before=opens,
            expires_at=Instant(opens + window.expires_s * SECOND),
            action=action,
        )
    )


def selftest(instance: Instance, now: Instant) -> bytes:
    """A statement that no agent can ever get, for the broker to judge."""
    target = Target(names.SELFTEST, Generation(1))
    return drafted(instance, target, Instruction("lever directive selftest"), Window(None, 60), now)


def review(raw: bytes, key: Path | None) -> None:
    """Show what these bytes say, and then the bytes themselves. key: what they are going to be signed with, if any."""
    value = statement.read(raw)
    show.say(f"For instance {value.instance}:" if key is None else f"To be signed for instance {value.instance}:")
    show.facts(
        {
            "  agent": f"{value.target.cn}, generation {value.target.generation}",
            "  from": times.show(value.not_before),
            "  until": times.show(value.expires_at),
            "  key": str(key or ""),
            "  says": value.action.kind,
        },
        words=True,
    )
    _review_action(value.action)
    show.say(f"The exact bytes, {len(raw)} of them, SHA-256 {hashlib.sha256(raw).hexdigest()}:")
    text = raw.decode()
    show.json_text(text)
    if text != show.safe_json(text):
        show.warn(
            "what a terminal would hide or obey stands there as a \\u escape; the bytes hold the character itself"
        )


def _review_action(action: Action) -> None:
    if isinstance(action, Instruction):
        # Line by line with a bar before each, so that no line of it can pose as one of ours.
        for line in action.text.split("\n"):
            show.say("    | " + line.replace("\\", "\\\\"))
        return
    if isinstance(action, LeaseAction):
        account = show.safe_json(json.dumps(action.account, ensure_ascii=False))
        show.barred([f"reads of account {account}", f"{action.ops} at most, in {action.ttl_seconds} s"], words=True)
        return
    if isinstance(action, Approval):
        quoted = [json.dumps(text, ensure_ascii=False) for text in (action.account, *action.resources)]
        account, *resources = map(show.safe_json, quoted)
        named = [f"tool      {action.tool}.{action.op}", *([f"account   {account}"] if action.account else [])]
        show.barred([*named, *(f"resource  {one}" for one in resources), "uses      1"], words=True)
        return
    show.say(f"    {action.tool} {action.op}")
    for line in json.dumps(action.args, indent=2, ensure_ascii=False, sort_keys=True).split("\n"):
        show.json_text("    " + line)


def consent(yes: bool) -> None:
    """Ask whether to sign what was shown, when there is somebody to ask. Raises CliError on a no.

    The question guards against a person's slip: the wrong agent, the wrong text. It is no boundary against a program,
    which could say --yes as well: what a program may sign is decided by who holds the key, its passphrase, its touch.
    So without a terminal the command goes on, and the review stands in its log. A person who can't have seen the
    review, since standard error leads elsewhere, is not asked but refused.
    """
    if yes or not show.can_ask():
        return
    if not sys.stderr.isatty():
        raise CliError(
            "expected standard error to be a terminal, where you can read what you sign",
            hint="leave out the 2>, or say --yes",
            exit=Exit.SIGNING_FAILED,
        )
    if not show.ask("Sign this?"):
        raise CliError("not signed, nothing sent", exit=Exit.SIGNING_FAILED)


def must_be_an_agent(cn: Cn) -> None:
    """Raises CliError for the one name that no agent has."""
    if cn == names.SELFTEST:
        raise CliError(
            "the name selftest is reserved: no agent has it", hint="lever directive selftest", exit=Exit.REFUSED
        )
