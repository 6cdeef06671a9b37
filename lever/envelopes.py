"""Signed admin operations: built, signed, and posted to the broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from broker.wire import envelope
from broker.wire.envelope import Envelope
from broker.wire.names import NAMESPACE_ADMIN
from lever import line, show, signer
from lever.draft import now
from lever.line import Line
from lever.where import Place


def order(place: Place, op: str, params: dict[str, str], *, quiet: bool = False) -> dict[str, Any]:
    """The body of a signed operation. quiet: for one that only reads; the bytes of others are shown before signing."""
    raw = envelope.encode(Envelope(place.instance, op, {"nonce": uuid.uuid4().hex, **params}, now()))
    key = place.key
    if not quiet:
        show.say(f"signing with {key}:")
        show.json_text(raw.decode())
    return line.signed_pair("envelope", raw, signer.sign(key, NAMESPACE_ADMIN, raw))


def ask(place: Place, route: str, op: str, params: dict[str, str]) -> dict[str, Any]:
    """The answer to a signed operation that only reads."""
    return _met(place).post(route, order(place, op, params, quiet=True))


def change(place: Place, route: str, op: str, params: dict[str, str]) -> dict[str, Any]:
    """The answer to a signed operation that changes something."""
    return _met(place).post(route, order(place, op, params))


def watch(place: Place, params: dict[str, str]) -> Iterator[dict[str, Any]]:
    """What the broker records from now on, as it comes."""
    yield from _met(place).stream("/admin/observe", order(place, "observe", params, quiet=True))


def _met(place: Place) -> Line:
    found = Line(place.socket)
    found.meet(place.instance)
    return found
