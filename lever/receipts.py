"""A receipt as data and in words: who allowed what, when, by which exact bytes, and what came of it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from broker.wire.act_records import CallEnded
from broker.wire.names import Instant
from broker.wire.records import PayloadRef, Record
from broker.wire.sshsig import UNTOLD
from broker.wire.times import SECOND
from broker.wire.times import show as shown

if TYPE_CHECKING:
    from broker.offline import Receipt

BytesOf = Callable[[PayloadRef], "bytes | None"]
Gestures = Mapping[str, str]  # by what was signed: `act`, `lease`, `policy 0123456789ab`, `note`
HEADERS = ("CLAIM", "AT", "AGENT", "TOOL", "CONSENT", "OUTCOME")
OUTCOMES = ("done", "failed", "not_dispatched", "outcome_unknown", "running")
DROPPED = "bytes dropped"
_ARMORED = ("args", "statement", "signature")


def row(receipt: Receipt) -> tuple[str, ...]:
    """Its cells under HEADERS."""
    claim = receipt.claim
    whose = f"{claim.cn}/{claim.generation}"
    at = shown(Instant(receipt.claimed.at // SECOND * SECOND))
    return (claim.claim, at, whose, claim.tool, receipt.consent[0], _outcome(receipt))


def gesture(receipt: Receipt, gestures: Gestures) -> str:
    """A further cell, without the reason."""
    return gestures.get(receipt.consent[0], UNTOLD if receipt.signature else "-").partition(":")[0]


def data(receipt: Receipt, bytes_of: BytesOf) -> dict[str, Any]:
    """All of it. Exact bytes as base64, and null once they were dropped; times as RFC 3339, digests in hex."""
    claim, ended = receipt.claim, receipt.ended
    of_answer = ended.fact if ended and isinstance(ended.fact, CallEnded) else None
    return {
        "claim": claim.claim,
        "record": receipt.claimed.seq,
        "at": shown(receipt.claimed.at),
        "agent": {"cn": claim.cn, "generation": claim.generation},
        "run": claim.run,
        "tool": claim.tool,
        "class": claim.tool_class,
        "account": claim.account or None,
        "resources": list(claim.resources),
        "call_id": claim.call_id or None,
        "args_digest": claim.args_digest.hex(),
        "tool_digest": claim.tool_digest.hex(),
        "args": _base64(bytes_of, receipt.claimed, 0),
        "policies": [
            {
                "scope": one.scope,
                "digest": one.digest,
                "applied_at": shown(one.at),
                "fingerprint": one.signature.fingerprint if one.signature else None,
            }
            for one in receipt.policies
        ],
        "consent": _consent(receipt, bytes_of),
        "outcome": _outcome(receipt),
        "ended_at": shown(ended.at) if ended else None,
        "answer_digest": of_answer.answer_digest.hex() if of_answer else None,
        "answer_bytes": of_answer.answer_bytes if of_answer else None,
        "note": _note(receipt, bytes_of),
    }


def _consent(receipt: Receipt, bytes_of: BytesOf) -> dict[str, Any]:
    kind, id = receipt.consent
    granted, signature = receipt.granted, receipt.signature
    told: dict[str, Any] = {"kind": kind}
    if granted is None or signature is None:
        return told
    return told | {
        "id": id,
        "asked_at": shown(receipt.asked.at) if receipt.asked else None,
        "granted_at": shown(granted.at),
        "fingerprint": signature.fingerprint,
        "statement_digest": signature.raw.digest.hex(),
        "statement": _base64(bytes_of, granted, 0),
        "signature": _base64(bytes_of, granted, 1),
    }


def _note(receipt: Receipt, bytes_of: BytesOf) -> dict[str, Any] | None:
    noted = receipt.noted
    if noted is None:
        return None
    raw = _bytes(bytes_of, noted, 0)
    text = None if raw is None else raw.decode("utf-8", "replace")  # a note that the broker took is UTF-8
    return {"at": shown(noted.at), "fingerprint": getattr(noted.fact, "fingerprint", ""), "text": text}


def facts(told: dict[str, Any]) -> dict[str, str]:
    """The same and its gestures in words, but for what others wrote: `lines` has that."""
    consent, note = told["consent"], told["note"] or {}
    agent, gestures = told["agent"], told["gestures"]
    return {
        "claim": told["claim"],
        "begun": told["at"],
        "agent": f"{agent['cn']}, generation {agent['generation']}",
        "tool": f"{told['tool']} ({told['class']})",
        "consent": " ".join(filter(None, (consent["kind"], consent.get("id")))),
        "asked": consent.get("asked_at") or "",
        "allowed": consent.get("granted_at") or "",
        "by key": consent.get("fingerprint") or "",
        "gesture": gestures.get(consent["kind"], UNTOLD) if "id" in consent else "",
        "signed bytes": _kept(consent, "statement") if "id" in consent else "",
        "policy": ", ".join(_policy(one, gestures) for one in told["policies"]),
        "arguments": _kept(told, "args"),
        "outcome": told["outcome"],
        "ended": told["ended_at"] or "",
        "answer": f"{told['answer_bytes']} bytes, SHA-256 {told['answer_digest']}" if told["answer_bytes"] else "",
        "noted": f"{note['at']}, by {note['fingerprint']} ({gestures.get('note', UNTOLD)})" if note else "",
    }


def _policy(told: dict[str, Any], gestures: Gestures) -> str:
    name = told["digest"][:12]
    return f"{name} of {told['scope']}, by {told['fingerprint']} ({gestures.get(f'policy {name}', UNTOLD)})"


def _kept(told: dict[str, Any], name: str) -> str:
    dropped = "" if told[name] is not None else f", {DROPPED}"
    return f"SHA-256 {told[f'{name}_digest']}{dropped}"


def bytes_in(told: dict[str, Any]) -> Iterator[bytes]:
    """The exact bytes that a receipt in a file holds. Raises ValueError."""
    consent = told.get("consent")
    for part in (told, consent if isinstance(consent, dict) else {}):
        for name in _ARMORED:
            if isinstance(text := part.get(name), str):
                yield base64.b64decode(text, validate=True)


def differences(told: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Where a receipt in a file is not what the journal says. A gesture that either can't tell is no difference."""
    names = [name for name in sorted({*told, *found} - {"gestures"}) if told.get(name) != found.get(name)]
    said, known = told.get("gestures", {}), found["gestures"]
    alike = isinstance(said, dict) and all(
        value == known.get(name) or any(str(one).startswith(UNTOLD) for one in (value, known.get(name)))
        for name, value in said.items()
    )
    return names if alike else [*names, "gesture"]


def _outcome(receipt: Receipt) -> str:
    return receipt.outcome or "running"


def _bytes(bytes_of: BytesOf, record: Record, number: int) -> bytes | None:
    """None where they are dropped, or the record, which need not be an honest one, names none."""
    return bytes_of(record.payloads[number]) if number < len(record.payloads) else None


def _base64(bytes_of: BytesOf, record: Record, number: int) -> str | None:
    raw = _bytes(bytes_of, record, number)
    return None if raw is None else base64.b64encode(raw).decode()
