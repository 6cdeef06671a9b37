"""The request bodies of both doors, as values. A wrong shape is Malformed; what the content may do is decided later."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Literal

from broker.errors import Malformed
from broker.wire import names, sshsig, strict_json
from broker.wire.strict_json import Fields, JsonValue

PAIR_MAX_BYTES = 131072
"""A signed pair: 64 KiB of statement and 16 KiB of signature, both as base64, and what stands around them."""
ID_BODY_MAX_BYTES = 4096
CSR_BODY_MAX_BYTES = 32768
REPORT_BODY_MAX_BYTES = 8192
CALL_BODY_MAX_BYTES = 131072
MAX_CALL_WAIT_S = 30
MAX_ID_CHARS = 256
MAX_NOTE_BYTES = 1024
OUTCOMES = ("done", "failed", "declined")
MAX_TICKET_CHARS = 256
MAX_CSR_CHARS = 16384

_ID = frozenset(("id",))
_ATTEMPT = frozenset(("attempt",))
_REPORT = frozenset(("id", "outcome"))
_NOTE = frozenset(("note",))
_CSR = frozenset(("csr",))
_ATTACHED = frozenset(("envelope", "signature"))
_ATTACHMENT = frozenset(("attachment",))
_FIGURES = frozenset(("run", "agent", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "cost_micro"))
_CALL = frozenset(("name", "arguments"))
_CALL_OPTIONAL = frozenset(("call_id", "wait_s"))
_ENROL = frozenset(("ticket", "csr"))


@dataclass(frozen=True, slots=True)
class SignedPair:
    """Bytes and the armored SSHSIG that is said to be theirs. Nobody has checked it."""

    raw: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class ConsumeBody:
    """id: as the caller wrote it, in any alphabet, since a malformed id is a miss; attempt: None when not given."""

    id: str
    attempt: str | None


@dataclass(frozen=True, slots=True)
class ReportBody:
    """id: as the caller wrote it; outcome: one of OUTCOMES; note: the agent's own words, for the operator alone."""

    id: str
    outcome: str
    note: str


@dataclass(frozen=True, slots=True)
class CallBody:
    """name: `server__tool`; arguments: any JSON, judged later; call_id: the client's name for the call, or empty."""

    name: str
    arguments: JsonValue
    call_id: str
    wait_s: float


@dataclass(frozen=True, slots=True)
class UsageBody:
    """What a run used since the last figures: this run, or where it is empty the one that the agent is in.

    cost_micro: 10,000 to the cent.
    """

    run: str
    agent: str
    input_tokens: int
    output_tokens: int
    cost_micro: int


@dataclass(frozen=True, slots=True)
class EnrolBody:
    """ticket: the text of the bundle; csr: PEM text, not looked into."""

    ticket: str
    csr: str


def signed_pair(raw: bytes, field: Literal["statement", "envelope"]) -> SignedPair:
    """{"statement" or "envelope": base64, "signature": base64 of the armored text}. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "body", max_bytes=PAIR_MAX_BYTES), "body", frozenset((field, "signature")))
    return SignedPair(
        _base64(fields.text(field), field, strict_json.MAX_BYTES),
        _base64(fields.text("signature"), "signature", sshsig.MAX_BYTES),
    )


def attached_pair(raw: bytes, max_bytes: int) -> tuple[SignedPair, bytes]:
    """A signed envelope, and what is attached to it under "attachment"; empty for nothing. Raises Malformed."""
    whole = strict_json.parse(raw, "body", max_bytes=PAIR_MAX_BYTES + max_bytes * 2)
    fields = Fields(whole, "body", _ATTACHED, _ATTACHMENT)
    pair = SignedPair(
        _base64(fields.text("envelope"), "envelope", strict_json.MAX_BYTES),
        _base64(fields.text("signature"), "signature", sshsig.MAX_BYTES),
    )
    attached = _base64(fields.text("attachment"), "attachment", max_bytes) if "attachment" in fields else b""
    return pair, attached


def usage_body(raw: bytes) -> UsageBody:
    """{"run"} or {"agent"}, figures by the names of the OpenTelemetry GenAI conventions, and `cost_micro`. Raises
    Malformed."""
    fields = Fields(strict_json.parse(raw, "body", max_bytes=ID_BODY_MAX_BYTES), "body", frozenset(), _FIGURES)
    if ("run" in fields) == ("agent" in fields):
        raise Malformed("body", "expected `run` or `agent`, and not both")
    return UsageBody(
        names.directive_id(fields.value("run"), "run") if "run" in fields else "",
        names.cn(fields.value("agent"), "agent") if "agent" in fields else "",
        _count(fields, "gen_ai.usage.input_tokens"),
        _count(fields, "gen_ai.usage.output_tokens"),
        _count(fields, "cost_micro"),
    )


def _count(fields: Fields, name: str) -> int:
    value = fields.value(name) if name in fields else 0
    if type(value) is not int or value < 0:
        raise Malformed(fields.path(name), "expected a whole number from 0 up")
    return value


def consume_body(raw: bytes) -> ConsumeBody:
    """{"id"} with an optional "attempt" of 1 to 64 id characters. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "body", max_bytes=ID_BODY_MAX_BYTES), "body", _ID, _ATTEMPT)
    attempt = names.attempt(fields.value("attempt")) if "attempt" in fields else None
    return ConsumeBody(_text(fields, "id", 0, MAX_ID_CHARS), attempt)


def check_body(raw: bytes) -> str:
    """{"id"}, the id in any alphabet. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "body", max_bytes=ID_BODY_MAX_BYTES), "body", _ID)
    return _text(fields, "id", 0, MAX_ID_CHARS)


def report_body(raw: bytes) -> ReportBody:
    """{"id", "outcome"} with an optional "note" of at most 1024 bytes. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "body", max_bytes=REPORT_BODY_MAX_BYTES), "body", _REPORT, _NOTE)
    outcome = fields.text("outcome")
    if outcome not in OUTCOMES:
        raise Malformed(fields.path("outcome"), f"expected one of {', '.join(OUTCOMES)}")
    note = _text(fields, "note", 0, MAX_NOTE_BYTES) if "note" in fields else ""
    if len(note.encode()) > MAX_NOTE_BYTES:
        raise Malformed(fields.path("note"), f"expected at most {MAX_NOTE_BYTES} bytes")
    return ReportBody(_text(fields, "id", 0, MAX_ID_CHARS), outcome, note)


def call_body(raw: bytes) -> CallBody:
    """{"name", "arguments"} with an optional "call_id" and "wait_s" (whole seconds, 30 at most). Raises Malformed.

    An integer beyond 2^53-1 in the arguments is not refused here: the judgement of the call says where it is.
    """
    read = strict_json.parse(raw, "body", max_bytes=CALL_BODY_MAX_BYTES, wide=True)
    _exact(_around(read))
    fields = Fields(read, "body", _CALL, _CALL_OPTIONAL)
    call_id = names.attempt(fields.value("call_id"), "call_id") if "call_id" in fields else ""
    wait_s = fields.value("wait_s") if "wait_s" in fields else 0
    if type(wait_s) is not int or not 0 <= wait_s <= MAX_CALL_WAIT_S:
        raise Malformed("wait_s", f"expected a whole number from 0 to {MAX_CALL_WAIT_S}")
    return CallBody(_text(fields, "name", 1, MAX_ID_CHARS), fields.value("arguments"), call_id, float(wait_s))


def mcp_body(raw: bytes) -> JsonValue:
    """A message to /mcp. Raises Malformed; of the arguments of a `tools/call` no sooner than `call_body` does."""
    read = strict_json.parse(raw, "body", max_bytes=CALL_BODY_MAX_BYTES, wide=True)
    if isinstance(read, dict) and read.get("method") == "tools/call":
        _exact(read | {"params": _around(read.get("params"))})
    else:
        _exact(read)
    return read


def enrol_body(raw: bytes) -> EnrolBody:
    """{"ticket", "csr"}. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "body", max_bytes=CSR_BODY_MAX_BYTES), "body", _ENROL)
    return EnrolBody(_text(fields, "ticket", 1, MAX_TICKET_CHARS), _text(fields, "csr", 1, MAX_CSR_CHARS))


def csr_body(raw: bytes) -> str:
    """{"csr"}: PEM text, not looked into. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "body", max_bytes=CSR_BODY_MAX_BYTES), "body", _CSR)
    return _text(fields, "csr", 1, MAX_CSR_CHARS)


def _around(call: JsonValue) -> JsonValue:
    """What stands beside a call's arguments."""
    return {name: value for name, value in call.items() if name != "arguments"} if isinstance(call, dict) else call


def _exact(read: JsonValue) -> None:
    if next(strict_json.beyond(read), None) is not None:
        raise Malformed("body", strict_json.BEYOND)


def _text(fields: Fields, name: str, least: int, most: int) -> str:
    text = fields.text(name)
    if not least <= len(text) <= most:
        raise Malformed(fields.path(name), f"expected {least} to {most} characters")
    return text


def _base64(text: str, where: str, max_bytes: int) -> bytes:
    """Standard base64 with padding, in the one spelling that its bytes have."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(where, "not standard base64") from error
    if base64.b64encode(raw) != text.encode():
        raise Malformed(where, "not the canonical base64 of its bytes")
    if not 1 <= len(raw) <= max_bytes:
        raise Malformed(where, f"expected 1 to {max_bytes} bytes, found {len(raw)}")
    return raw
