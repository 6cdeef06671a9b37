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
_APPROVAL_FIELDS = frozenset(
    ("kind", "tool", "op", "arg_binding", "uses", "request_id", "account", "resources", "args_digest", "tool_digest")
)
_LEASE_FIELDS = frozenset(("kind", "account", "ttl_seconds", "ops"))
_LEASE_OPTIONAL = frozenset(("request_id",))
MAX_LEASE_SECONDS = 300
MAX_LEASE_OPS = 100
MAX_ACCOUNT_CHARS = 128
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


@dataclass(frozen=True, slots=True)
class Approval:
    """The answer to a request: exactly the call that waits. tool, op: the server and its tool; digests: SHA-256."""

    request_id: str
    tool: str
    op: str
    account: str
    resources: tuple[str, ...]
    args_digest: Digest
    tool_digest: Digest

    @property
    def kind(self) -> Literal["approval"]:
        """Its name in the statement."""
        return "approval"


@dataclass(frozen=True, slots=True)
class LeaseAction:
    """Reads of one account: ops of them at most, within ttl_seconds of the first. request_id: empty for none."""

    account: str
    ttl_seconds: int
    ops: int
    request_id: str = ""

    @property
    def kind(self) -> Literal["lease"]:
        """Its name in the statement."""
        return "lease"


Action: TypeAlias = BoundAction | Instruction | Approval | LeaseAction


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
            return _approval(members) if "request_id" in members else _bound("approval", members)
        case "instruction":
            return _instruction(members)
        case "lease":
            return _lease(members)
        case None if "kind" not in members:
            raise Malformed("action.kind", "missing")
        case _:
            raise Malformed("action.kind", "expected tool_call, approval, lease or instruction")


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


def _approval(members: JsonObject) -> Approval:
    fields = Fields(members, "action", _APPROVAL_FIELDS, prefix="action.")
    fields.exactly("arg_binding", "exact")
    fields.exactly("uses", 1)
    return Approval(
        names.directive_id(fields.value("request_id"), "action.request_id"),
        names.tool_word(fields.value("tool"), "action.tool"),
        names.tool_word(fields.value("op"), "action.op"),
        fields.text("account"),
        _texts(fields.value("resources"), "action.resources"),
        names.digest(fields.value("args_digest"), "action.args_digest"),
        names.digest(fields.value("tool_digest"), "action.tool_digest"),
    )


def _lease(members: JsonObject) -> LeaseAction:
    fields = Fields(members, "action", _LEASE_FIELDS, _LEASE_OPTIONAL, prefix="action.")
    account = fields.text("account")
    if not 1 <= len(account) <= MAX_ACCOUNT_CHARS:
        raise Malformed("action.account", f"expected 1 to {MAX_ACCOUNT_CHARS} characters")
    asked = names.directive_id(fields.value("request_id"), "action.request_id") if "request_id" in fields else ""
    return LeaseAction(
        account,
        _whole(fields.value("ttl_seconds"), "action.ttl_seconds", MAX_LEASE_SECONDS),
        _whole(fields.value("ops"), "action.ops", MAX_LEASE_OPS),
        asked,
    )


def _whole(value: JsonValue, where: str, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise Malformed(where, f"expected a whole number from 1 to {most}")
    return value


def _texts(value: JsonValue, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Malformed(where, "expected an array of texts")
    return tuple(str(item) for item in value)


def _instruction(members: JsonObject) -> Instruction:
    text = Fields(members, "action", _INSTRUCTION_FIELDS, prefix="action.").text("text")
    if not 1 <= len(text.encode()) <= MAX_TEXT_BYTES:
        raise Malformed("action.text", f"expected 1 to {MAX_TEXT_BYTES} bytes of UTF-8")
    return Instruction(text)


def action_json(action: Action) -> dict[str, JsonValue]:
    """The action as the signed statement holds it, field for field."""
    if isinstance(action, Instruction):
        return {"kind": action.kind, "text": action.text}
    if isinstance(action, LeaseAction):
        asked: dict[str, JsonValue] = {"request_id": action.request_id} if action.request_id else {}
        return {
            "kind": "lease",
            "account": action.account,
            "ttl_seconds": action.ttl_seconds,
            "ops": action.ops,
            **asked,
        }
    if isinstance(action, Approval):
        return {
            "kind": "approval",
            "tool": action.tool,
            "op": action.op,
            "arg_binding": "exact",
            "uses": 1,
            "request_id": action.request_id,
            "account": action.account,
            "resources": list(action.resources),
            "args_digest": action.args_digest.hex(),
            "tool_digest": action.tool_digest.hex(),
        }
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
