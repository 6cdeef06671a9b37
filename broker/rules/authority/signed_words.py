"""What the operator's signed bytes behind a receipt say, held against what the journal recorded of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from broker.rules.authority.receipts import Accepted, Applied, Receipt
from broker.wire import envelope, frozen, statement
from broker.wire.act_records import ActGranted, LeaseOpened, OutcomeNoted
from broker.wire.records import Record
from broker.wire.statement import Approval, BoundAction, LeaseAction


def unlike(receipt: Receipt, raw: bytes) -> Iterator[str]:
    """What the signed statement says that the record of the grant does not. Raises Malformed for no statement."""
    said, fact = statement.read(raw), receipt.granted.fact if receipt.granted else None
    if not isinstance(fact, ActGranted | LeaseOpened):
        return
    id = fact.act if isinstance(fact, ActGranted) else fact.lease
    if (said.directive_id, said.target.cn, said.target.generation) != (id, fact.cn, fact.generation):
        yield "what was signed is for another agent, or another act"
    for name, (signed, recorded) in _bound(said.action, fact).items():
        if signed != recorded:
            yield f"what was signed says another {name}"


def _bound(action: statement.Action, fact: ActGranted | LeaseOpened) -> Mapping[str, tuple[Any, Any]]:
    """By name, what the statement says and what was recorded of it."""
    match action, fact:
        case Approval(), ActGranted():
            return {
                "tool": (f"{action.tool}.{action.op}", fact.tool),
                "account": (action.account, fact.account),
                "resources": (action.resources, fact.resources),
                "request": (action.request_id, fact.request),
                "digest of the arguments": (action.args_digest, fact.args_digest),
                "digest of the tool": (action.tool_digest, fact.tool_digest),
            }
        case BoundAction(kind="tool_call"), ActGranted():
            return {
                "tool": (f"{action.tool}.{action.op}", fact.tool),
                "digest of the arguments": (frozen.freeze(action.args).digest, fact.args_digest),
            }
        case LeaseAction(), LeaseOpened():
            return {
                "account": (action.account, fact.account),
                "request": (action.request_id, fact.request),
                # The policy, or the agent's own request, may have made it shorter than it was signed.
                "length": (action.ttl_seconds, max(action.ttl_seconds, fact.seconds)),
                "number of operations": (action.ops, max(action.ops, fact.operations)),
            }
        case _:
            return {"kind of action": (action.kind, "")}


def orders(raw: bytes, applied: Applied) -> bool:
    """Does the signed envelope put this policy in force for this scope? Raises Malformed for no envelope."""
    said = envelope.read(raw)
    named = (said.op, said.params.get("scope"), said.params.get("digest"))
    return named == ("policy_apply", applied.scope, applied.digest)


def accepts(raw: bytes, accepted: Accepted) -> bool:
    """Does the signed envelope accept these definitions? Raises Malformed for no envelope."""
    said = envelope.read(raw)
    digests = [ref.digest.hex() for ref in accepted.payloads]
    return said.op == "tools_accept" and [said.params.get("digest")] == digests


def notes(raw: bytes, noted: Record) -> bool:
    """Does the signed envelope say what this note says? Raises Malformed for no envelope."""
    said, fact = envelope.read(raw), noted.fact
    named = (said.op, said.params.get("claim"), sha256(said.params.get("note", "").encode()).digest())
    return isinstance(fact, OutcomeNoted) and named == (
        "outcome_note",
        fact.claim,
        *(ref.digest for ref in noted.payloads),
    )
