"""An envelope: one admin operation, as the JSON whose exact bytes are signed. docs/formats/envelope.md is normative."""

from __future__ import annotations

import re
from dataclasses import dataclass

from broker.errors import Malformed
from broker.wire import names, strict_json, times
from broker.wire.names import Instance, Instant
from broker.wire.strict_json import Fields, JsonValue
from broker.wire.verified import VerifiedBytes

VERSION = 1
_REQUIRED = frozenset(("v", "instance", "op", "issued_at"))
_OPTIONAL = frozenset(("params",))
_OP = re.compile(r"[a-z_]{1,64}")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the operator asks of the broker itself. op: 1 to 64 of `a-z _`."""

    instance: Instance
    op: str
    params: dict[str, str]
    issued_at: Instant


def encode(envelope: Envelope) -> bytes:
    """The canonical bytes to sign. Raises Malformed for an envelope that `parse` would refuse."""
    params: dict[str, JsonValue] = {**envelope.params}
    raw = strict_json.canonical(
        {
            "v": VERSION,
            "instance": envelope.instance,
            "op": envelope.op,
            "params": params,
            "issued_at": times.show(envelope.issued_at),
        }
    )
    read(raw)
    return raw


def parse(verified: VerifiedBytes) -> Envelope:
    """The envelope in bytes whose signature was accepted. Raises Malformed."""
    if verified.namespace != names.NAMESPACE_ADMIN:
        raise Malformed("envelope", "signed under another namespace")
    return read(verified.raw)


def read(raw: bytes) -> Envelope:
    """The envelope in bytes that nobody vouches for: to show it, never to act on it. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "envelope"), "envelope", _REQUIRED, _OPTIONAL)
    fields.exactly("v", VERSION)
    op = fields.text("op")
    if not _OP.fullmatch(op):
        raise Malformed("op", "expected 1 to 64 of a-z _")
    return Envelope(
        names.instance(fields.value("instance")),
        op,
        _params(fields),
        times.parse(fields.value("issued_at"), "issued_at"),
    )


def _params(fields: Fields) -> dict[str, str]:
    params: dict[str, str] = {}
    for name, value in fields.members("params").items():
        if not isinstance(value, str):
            found = strict_json.kind_of(value)
            raise Malformed(f"params.{strict_json.shown(name)}", f"expected a text, found {found}")
        params[name] = value
    return params
