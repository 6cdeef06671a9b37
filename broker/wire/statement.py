"""A statement: what the operator says, as the JSON whose exact bytes are signed.

docs/formats/statement.md is the normative page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, TypeAlias

from broker.errors import Malformed
from broker.wire import names, strict_json, times
from broker.wire.names import Cn, Digest, DirectiveId, Generation, Instance, Instant
from broker.wire.strict_json import Fields, JsonObject, JsonValue
from broker.wire.verified import VerifiedBytes

VERSION = 1
MAX_TEXT_BYTES = 4096
_FIELDS = frozenset(
    ("v", "instance", "directive_id", "target_agent", "issued_at", "not_before", "expires_at", "action")
)
_TARGET_FIELDS = frozenset(("cn", "generation"))
_BOUND_FIELDS = frozenset(("kind", "tool", "op", "arg_binding", "uses"))
_BOUND_OPTIONAL = frozenset(("args",))
_INSTRUCTION_FIELDS = frozenset(("kind", "text"))


@dataclass(frozen=True, slots=True)
class Target:
    """One agent in one enrolment."""

    cn: Cn
    generation: Generation


@dataclass(frozen=True, slots=True)
class BoundAction:
    """One call with its exact arguments, once."""

    kind: Literal["tool_call", "approval"]
    tool: str
    op: str
    args: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instruction:
    """Advice in words. text: 1 byte to 4 KiB of UTF-8."""

    text: str

    @property
    def kind(self) -> Literal["instruction"]:
        """Its name in the statement, as a bound action has one."""
        return "instruction"


Action: TypeAlias = BoundAction | Instruction


@dataclass(frozen=True, slots=True)
class Statement:
    """What one directive says, to whom, and when it holds: not_before <= now < expires_at."""

    instance: Instance
    directive_id: DirectiveId
    target: Target
    issued_at: Instant
    not_before: Instant
    expires_at: Instant
    action: Action


def encode(statement: Statement) -> bytes:
    """The canonical bytes to sign. Raises Malformed for a statement that `read` would refuse."""
    raw = strict_json.canonical(
        {
            "v": VERSION,
            "instance": statement.instance,
            "directive_id": statement.directive_id,
            "target_agent": {"cn": statement.target.cn, "generation": statement.target.generation},
            "issued_at": times.show(statement.issued_at),
            "not_before": times.show(statement.not_before),
            "expires_at": times.show(statement.expires_at),
            "action": action_json(statement.action),
        }
    )
    read(raw)
    return raw


def parse(verified: VerifiedBytes) -> Statement:
    """The statement in bytes whose signature was accepted. Raises Malformed."""
    if verified.namespace != names.NAMESPACE_DIRECTIVE:
        raise Malformed("statement", "signed under another namespace")
    return read(verified.raw)


def read(raw: bytes) -> Statement:
    """The statement in bytes that nobody vouches for: to show it, never to act on it. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "statement"), "statement", _FIELDS)
    fields.exactly("v", VERSION)
    target = fields.inner("target_agent", _TARGET_FIELDS)
    return Statement(
        names.instance(fields.value("instance")),
        names.directive_id(fields.value("directive_id")),
        Target(
            names.cn(target.value("cn"), target.path("cn")),
            names.generation(target.value("generation"), target.path("generation")),
        ),
        times.parse(fields.value("issued_at"), "issued_at"),
        times.parse(fields.value("not_before"), "not_before"),
        times.parse(fields.value("expires_at"), "expires_at"),
        _action(fields.members("action")),
    )


def _action(members: JsonObject) -> Action:
    match members.get("kind"):
        case "tool_call":
            return _bound("tool_call", members)
        case "approval":
            return _bound("approval", members)
        case "instruction":
            return _instruction(members)
        case "lease":
            raise Malformed("action.kind", "lease is not supported yet: send a tool_call for each operation")
        case None if "kind" not in members:
            raise Malformed("action.kind", "missing")
        case _:
            raise Malformed("action.kind", "expected tool_call, approval or instruction")


def _bound(kind: Literal["tool_call", "approval"], members: JsonObject) -> BoundAction:
    fields = Fields(members, "action", _BOUND_FIELDS, _BOUND_OPTIONAL, prefix="action.")
    fields.exactly("arg_binding", "exact")
    fields.exactly("uses", 1)
    return BoundAction(
        kind,
        names.tool_word(fields.value("tool"), "action.tool"),
        names.tool_word(fields.value("op"), "action.op"),
        # The public Go client leaves empty arguments out.
        fields.members("args"),
    )


def _instruction(members: JsonObject) -> Instruction:
    text = Fields(members, "action", _INSTRUCTION_FIELDS, prefix="action.").text("text")
    if not 1 <= len(text.encode()) <= MAX_TEXT_BYTES:
        raise Malformed("action.text", f"expected 1 to {MAX_TEXT_BYTES} bytes of UTF-8")
    return Instruction(text)


def action_json(action: Action) -> dict[str, JsonValue]:
    """The action as the signed statement holds it, field for field."""
    if isinstance(action, Instruction):
        return {"kind": action.kind, "text": action.text}
    return {
        "kind": action.kind,
        "tool": action.tool,
        "op": action.op,
        "args": action.args,
        "arg_binding": "exact",
        "uses": 1,
    }


def action_digest(action: Action) -> Digest:
    """SHA-256 of the canonical action."""
    return Digest(sha256(strict_json.canonical(action_json(action))).digest())
