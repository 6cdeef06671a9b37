"""Signed admin operations: built, signed, and posted to the broker."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterator
from typing import Any

from broker.wire import envelope
from broker.wire.envelope import Envelope
from broker.wire.names import NAMESPACE_ADMIN
from lever import draft, line, show, signer
from lever.draft import now
from lever.line import Line
from lever.where import Place


def order(
    place: Place,
    op: str,
    params: dict[str, str],
    *,
    quiet: bool = False,
    attached: bytes = b"",
    asking: bool = False,
    yes: bool = False,
) -> dict[str, Any]:
    """The body of a signed operation. quiet: for one that only reads; the bytes of others are shown before signing.

    attached: goes along unsigned, bound by its SHA-256; asking: whether a person is asked first, who may say yes.
    """
    if attached:
        params = {**params, "digest": hashlib.sha256(attached).hexdigest()}
    raw = envelope.encode(Envelope(place.instance, op, {"nonce": uuid.uuid4().hex, **params}, now()))
    key = place.key
    if not quiet:
        show.say(f"signing with {key}:")
        show.json_text(raw.decode())
    if asking:
        draft.consent(yes)
    body = line.signed_pair("envelope", raw, signer.sign(key, NAMESPACE_ADMIN, raw))
    return body | ({"attachment": base64.b64encode(attached).decode()} if attached else {})


def ask(place: Place, route: str, op: str, params: dict[str, str]) -> dict[str, Any]:
    """The answer to a signed operation that only reads."""
    return met(place).post(route, order(place, op, params, quiet=True))


def change(place: Place, route: str, op: str, params: dict[str, str]) -> dict[str, Any]:
    """The answer to a signed operation that changes something."""
    return met(place).post(route, order(place, op, params))


def attach(place: Place, op: str, params: dict[str, str], attached: bytes, *, yes: bool) -> dict[str, Any]:
    """The answer to one that carries bytes along, which were shown: a person is asked before it is signed."""
    body = order(place, op, params, attached=attached, asking=True, yes=yes)
    return met(place).post(f"/admin/{op}", body)


def watch(place: Place, params: dict[str, str]) -> Iterator[dict[str, Any]]:
    """What the broker records from now on, as it comes."""
    yield from met(place).stream("/admin/observe", order(place, "observe", params, quiet=True))


def met(place: Place) -> Line:
    """The line to the broker of this instance, and no other."""
    found = Line(place.socket)
    found.meet(place.instance)
    return found
