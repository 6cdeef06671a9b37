"""The bodies that the agent door answers with: JSON bytes, the refusals each one constant."""

from __future__ import annotations

import json
from collections.abc import Sequence

from broker.wire.names import DirectiveId, Instant
from broker.wire.times import show

MISS = b'{"error":"not found"}'
FORBIDDEN = b'{"error":"forbidden"}'
RATE_LIMITED = b'{"error":"rate limited"}'
ADVISORY_NOTE = "Advisory: it never overrides a refusal of a sensitive or outbound action."


def encode(value: object) -> bytes:
    """Any JSON value as compact UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def consumed(admitted: bytes, *, enforced: bool = False) -> bytes:
    """What a consume gives: the signed action as it was signed, or an instruction's text with its note.

    admitted: a statement's bytes, read strictly when they were admitted, so that a plain read is enough here.
    enforced: the gateway holds the agent to this call; otherwise nothing outside the agent does.
    """
    statement = json.loads(admitted)
    action = statement["action"]
    head = {"id": statement["directive_id"], "kind": action["kind"]}
    if action["kind"] == "instruction":
        return encode(head | {"advisory_text": action["text"], "note": ADVISORY_NOTE})
    return encode(head | {"action": {"args": {}, **action}, "enforced": enforced})


def checked(id: str, state: str) -> bytes:
    """The state of the caller's own directive."""
    return encode({"id": id, "state": state})


def reported(id: str, outcome: str) -> bytes:
    """The outcome that is written down for the caller's own directive."""
    return encode({"id": id, "reported": outcome})


def certificate(pem: bytes) -> bytes:
    """A certificate in PEM, for enrol and renew."""
    return encode({"cert": pem.decode("ascii")})


def pointers(
    waiting: Sequence[tuple[DirectiveId, Instant]], settled: Sequence[tuple[DirectiveId, Instant]] = ()
) -> bytes:
    """The inbox: each open directive's id, and since when it waits. settled: requests, in a list of their own where
    there are any, so that nobody takes one for a directive."""
    requests = {"requests": _rows(settled)} if settled else {}
    return encode({"pointers": _rows(waiting)} | requests)


def _rows(waiting: Sequence[tuple[DirectiveId, Instant]]) -> list[dict[str, str]]:
    return [{"id": id, "notified_at": show(at)} for id, at in waiting]
