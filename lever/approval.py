"""An answer to a request: what waits is fetched, held against its own digests, and shown as it will be executed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from broker.errors import Malformed
from broker.wire import frozen, names, strict_json, times
from broker.wire.frozen import Frozen
from broker.wire.names import Digest, DirectiveId, Instant
from broker.wire.policy_terms import MAX_LEASE_OPERATIONS, MAX_LEASE_SECONDS, Account
from broker.wire.statement import Approval, LeaseAction, Target
from broker.wire.strict_json import JsonValue
from lever import show
from lever.exits import CliError, Exit
from lever.line import Line

LONG = 160
_SHORT_HEX = 12
_MISSING: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request, read from what the broker `told`.

    arguments: None once it was answered, for then the broker holds them no more. terms: what the policy in force lets a
    lease of its account be, None where none knows it.
    """

    id: DirectiveId
    state: str
    regime: str
    target: Target
    tool: str
    account: str
    resources: tuple[str, ...]
    args_digest: Digest
    tool_digest: Digest
    policies: tuple[str, ...]
    reason: str
    expires_at: Instant
    arguments: Frozen | None
    terms: Account | None
    told: dict[str, Any] = field(compare=False, repr=False)

    @property
    def approval(self) -> Approval:
        """What is signed for one call of exactly these arguments."""
        server, _, tool = self.tool.partition(".")
        return Approval(
            self.id, server, tool, self.account, self.resources, self.args_digest, self.tool_digest,
        )  # fmt: skip

    @property
    def seconds(self) -> int | None:
        """How short a lease the agent itself asked for; None where it said nothing of it."""
        found = self.arguments.value.get("seconds") if self.arguments and not self.tool else None
        return found if type(found) is int and found > 0 else None

    def lease(self, seconds: int, operations: int) -> LeaseAction:
        """What is signed for reads of its account."""
        return LeaseAction(self.account, seconds, operations, self.id)


def fetched(line: Line, id: DirectiveId) -> Waiting:
    """A request with its exact bytes. Raises CliError, exit 6, where anything in it is not what its digest says."""
    answer = line.get("/request", id=id)
    try:
        return _read(answer, id)
    except (Malformed, binascii.Error) as error:
        raise CliError(
            f"the broker's answer is not the request {id} as it must be: {error}; nothing was signed",
            hint="lever doctor",
            exit=Exit.VERIFICATION_FAILED,
        ) from error


def _read(answer: dict[str, Any], id: DirectiveId) -> Waiting:
    if answer.get("request") != id:
        raise Malformed("request", "it is another one")
    said = answer.get("agent")
    agent = said if isinstance(said, dict) else _MISSING
    state, digest = _text(answer, "state"), names.digest(answer.get("args_digest"), "args_digest")
    raw = base64.b64decode(_text(answer, "args"), validate=True)
    if hashlib.sha256(raw).digest() != digest and (raw or state == "pending"):
        raise Malformed("args", "their SHA-256 is not args_digest")
    return Waiting(
        id,
        state,
        _text(answer, "regime"),
        Target(names.cn(agent.get("cn")), names.generation(agent.get("generation"))),
        _text(answer, "tool"),
        _text(answer, "account"),
        _texts(answer, "resources"),
        digest,
        names.digest(answer.get("tool_digest"), "tool_digest"),
        _texts(answer, "policies"),
        _text(answer, "reason"),
        times.parse(answer.get("expires_at"), "expires_at"),
        frozen.thaw(raw) if raw else None,
        _terms(answer.get("terms")),
        answer,
    )


def _terms(told: object) -> Account | None:
    """No more than a policy may say, or it is no policy's."""
    if told is None:
        return None
    terms = told if isinstance(told, dict) else _MISSING
    sensitive, seconds, operations = (terms.get(name) for name in ("sensitive", "lease_seconds", "lease_operations"))
    if type(sensitive) is not bool or type(seconds) is not int or type(operations) is not int:
        raise Malformed("terms", "expected sensitive, lease_seconds and lease_operations")
    if not (1 <= seconds <= MAX_LEASE_SECONDS and 1 <= operations <= MAX_LEASE_OPERATIONS):
        raise Malformed("terms", f"beyond {MAX_LEASE_SECONDS} seconds or {MAX_LEASE_OPERATIONS} operations")
    return Account(sensitive, seconds, operations)


def _text(answer: dict[str, Any], name: str) -> str:
    value = answer.get(name)
    if value is not None and not isinstance(value, str):
        raise Malformed(name, "expected a text")
    return value or ""


def _texts(answer: dict[str, Any], name: str) -> tuple[str, ...]:
    value = answer.get(name)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Malformed(name, "expected an array of texts")
    return tuple(value)


def lines(waiting: Waiting) -> Iterator[str]:
    """What waits, a line for each thing that matters; values of others as JSON, in which every character is seen."""
    if waiting.tool:
        yield f"tool      {show.safe(waiting.tool)}"
    if waiting.account:
        yield f"account   {_quoted(waiting.account)}"
    yield from (f"resource  {_quoted(one)}" for one in waiting.resources)
    if waiting.arguments is None:
        yield f"arguments that the broker holds no more, SHA-256 {waiting.args_digest.hex()}"
        return
    yield from (f"argument  {_argument(name, value)}" for name, value in waiting.arguments.value.items())
    yield f"arguments {len(waiting.arguments.raw)} bytes, SHA-256 {waiting.args_digest.hex()}"


def policies(waiting: Waiting) -> str:
    """The policy versions that the request was judged under, by the beginnings of their digests."""
    return ", ".join(digest[:_SHORT_HEX] for digest in waiting.policies)


def long_values(waiting: Waiting) -> Iterator[tuple[str, list[str]]]:
    """Each argument that is shown by size and digest, with the whole of it in lines."""
    for name, value in waiting.arguments.value.items() if waiting.arguments else ():
        if len(_json(value)) <= LONG:
            continue
        if isinstance(value, str):
            # A backslash of its own can't pass for the beginning of one of our spellings.
            whole = [line.replace("\\", "\\\\") for line in value.split("\n")]
        else:
            whole = [show.safe_json(line) for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n")]
        yield f"argument {_quoted(name)}, {_size(value)}", whole


def _argument(name: str, value: JsonValue) -> str:
    text = _json(value)
    if len(text) <= LONG:
        return f"{_quoted(name)}: {show.safe_json(text)}"
    return f"{_quoted(name)}: {_size(value)}"


def _size(value: JsonValue) -> str:
    """A long value by its kind, size and digest: of the text itself, or of the canonical JSON of anything else."""
    raw = value.encode() if isinstance(value, str) else strict_json.canonical(value)
    return f"{strict_json.kind_of(value)} of {len(raw)} bytes, SHA-256 {hashlib.sha256(raw).hexdigest()}"


def _quoted(text: str) -> str:
    return show.safe_json(_json(text))


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
