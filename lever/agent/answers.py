"""What the broker answers an agent, read strictly: the broker is known by its certificate, and still can be wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from broker.errors import Malformed
from broker.wire import names, strict_json, times
from broker.wire.bodies import OUTCOMES
from broker.wire.names import DirectiveId, Instant
from broker.wire.pointer import About
from broker.wire.strict_json import JsonObject

MAX_BYTES = 524_288
"""A statement's 64 KiB may grow sixfold where a broker escapes characters, plus room."""
MAX_RESULT_BYTES = 65 * 1024 * 1024
"""The most that an operator may let one tool answer, plus room."""
MAX_POINTERS = 10_000
_STATES = frozenset({"scheduled", "active", "consumed", "revoked", "invalidated", "expired"})

Result: TypeAlias = dict[str, Any]
"""MCP's CallToolResult, as plain JSON."""


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a consume gave. raw: the answer's exact bytes; members: the same as a value."""

    id: DirectiveId
    kind: str
    raw: bytes
    members: JsonObject


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pointer: this directive waits for its agent, or this request of its own is settled, since `notified_at`."""

    id: DirectiveId
    notified_at: Instant
    about: About = About.DIRECTIVE


def certificate(raw: bytes) -> bytes:
    """The certificate's PEM in an answer to enrol or renew. Raises Malformed."""
    pem = _object(raw).get("cert")
    if not isinstance(pem, str) or not pem.isascii():
        raise Malformed("answer.cert", "expected a certificate in PEM")
    return pem.encode("ascii")


def consumed(raw: bytes, asked: DirectiveId) -> Consumed:
    """The answer to a consume of this id. Raises Malformed.

    A member or a kind that is not known here is let through: the directive is spent, and its text must not be lost.
    """
    members = _object(raw)
    _same_id(members, asked)
    kind = names.tool_word(members.get("kind"), "answer.kind")
    if kind == "instruction" and not isinstance(members.get("advisory_text"), str):
        raise Malformed("answer.advisory_text", "expected a text")
    if kind in ("tool_call", "approval") and not isinstance(members.get("action"), dict):
        raise Malformed("answer.action", "expected an object")
    return Consumed(asked, kind, raw, members)


def state(raw: bytes, asked: DirectiveId) -> str:
    """The state in an answer to a check of this id. Raises Malformed."""
    members = _object(raw)
    _same_id(members, asked)
    found = members.get("state")
    if not isinstance(found, str) or found not in _STATES:
        raise Malformed("answer.state", "expected one of " + ", ".join(sorted(_STATES)))
    return found


def reported(raw: bytes, asked: DirectiveId) -> str:
    """The outcome in an answer to a report on this id. Raises Malformed."""
    members = _object(raw)
    _same_id(members, asked)
    found = members.get("reported")
    if not isinstance(found, str) or found not in OUTCOMES:
        raise Malformed("answer.reported", "expected one of " + ", ".join(OUTCOMES))
    return found


def pointers(raw: bytes) -> tuple[Waiting, ...]:
    """The pointers of an inbox. One id outside the safe alphabet spoils the whole answer. Raises Malformed."""
    inbox = _object(raw)
    directives = _pointers(inbox.get("pointers"), "answer.pointers", About.DIRECTIVE)
    return (*directives, *_pointers(inbox.get("requests", []), "answer.requests", About.REQUEST))


def inbox(waiting: Iterable[Waiting]) -> dict[str, Any]:
    """The same as it is passed on: requests stand in a list of their own, which is there where there are any."""
    told: dict[About, list[dict[str, str]]] = {About.DIRECTIVE: [], About.REQUEST: []}
    for one in waiting:
        told[one.about].append({"id": one.id, "notified_at": times.show(one.notified_at)})
    requests = {"requests": told[About.REQUEST]} if told[About.REQUEST] else {}
    return {"pointers": told[About.DIRECTIVE]} | requests


def tools(raw: bytes) -> list[dict[str, Any]]:
    """The definitions of the tools that this agent may call or ask for. Raises Malformed."""
    found = _loose(raw).get("tools")
    if not isinstance(found, list) or not all(isinstance(one, dict) and "name" in one for one in found):
        raise Malformed("answer.tools", "expected a list of tools")
    return found


def result(raw: bytes) -> Result:
    """What came of a tool call. Raises Malformed."""
    found = _loose(raw)
    if "content" not in found:
        raise Malformed("answer.content", "missing")
    return found


def _loose(raw: bytes) -> dict[str, Any]:
    """An object that holds a tool server's own words: those need keep to no rule of ours, and nothing is decided on
    them."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Malformed("answer", "not one JSON value") from error
    if not isinstance(value, dict):
        raise Malformed("answer", "expected a JSON object")
    return value


def _pointers(found: object, where: str, about: About) -> tuple[Waiting, ...]:
    if not isinstance(found, list) or len(found) > MAX_POINTERS:
        raise Malformed(where, f"expected a list of at most {MAX_POINTERS}")
    return tuple(_pointer(item, f"{where}[{index}]", about) for index, item in enumerate(found))


def _pointer(item: object, where: str, about: About) -> Waiting:
    if not isinstance(item, dict):
        raise Malformed(where, "expected an object")
    return Waiting(
        names.directive_id(item.get("id"), f"{where}.id"),
        times.parse(item.get("notified_at"), f"{where}.notified_at"),
        about,
    )


def _object(raw: bytes) -> JsonObject:
    value = strict_json.parse(raw, "answer", max_bytes=MAX_BYTES)
    if not isinstance(value, dict):
        raise Malformed("answer", "expected a JSON object")
    return value


def _same_id(members: JsonObject, asked: DirectiveId) -> None:
    if members.get("id") != asked:
        raise Malformed("answer.id", "is not the id that was asked for")
