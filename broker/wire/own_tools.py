"""The gateway's own tools, beside those of the servers: leases, and how a request stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.errors import Malformed
from broker.wire import tool_results

OWN: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": "lease_request",
        "title": "Ask to read an account",
        "description": "Ask the operator for a short lease to read one account. It closes by itself.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "account": {"type": "string", "description": "The account, as the operator's policy names it."},
                "minutes": {"type": "integer", "description": "Deprecated: it can only shorten the lease."},
            },
            "required": ["account"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
    },
    {
        "name": "lease_release",
        "title": "Give a lease back",
        "description": "Close your lease of one account early. It closes by itself in any case.",
        "inputSchema": {
            "type": "object",
            "properties": {"account": {"type": "string", "description": "The account of the lease."}},
            "required": ["account"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
    },
    {
        "name": "request_status",
        "title": "How a request stands",
        "description": (
            "How a request to the operator stands, and once its call was made, what came of it. Do not ask in a loop."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {"request_id": {"type": "string", "description": "As consent_required named it."}},
            "required": ["request_id"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
)
NAMES: Final = tuple(tool["name"] for tool in OWN)


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """minutes: deprecated, as given; None when it was not."""

    account: str
    minutes: int | None


@dataclass(frozen=True, slots=True)
class LeaseRelease:
    """An end before the end."""

    account: str


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """By the request's id, in any alphabet."""

    request_id: str


Call = LeaseRequest | LeaseRelease | RequestStatus


def parse(name: str, arguments: object) -> Call:
    """What a call of one of OWN means. Raises Malformed, in words for the model."""
    known = {"lease_request": ("account", "minutes"), "lease_release": ("account",), "request_status": ("request_id",)}
    if name not in known:
        raise Malformed("tool", tool_results.NO_SUCH_TOOL)
    if not isinstance(arguments, Mapping):
        raise Malformed("arguments", "expected an object")
    if unknown := sorted(str(key) for key in arguments if key not in known[name]):
        raise Malformed(ascii(unknown[0])[1:65], f"not an argument of this tool; expected {', '.join(known[name])}")
    word = arguments.get(known[name][0])
    if not isinstance(word, str) or not 1 <= len(word) <= 128:
        raise Malformed(known[name][0], "expected text of 1 to 128 characters")
    if name == "lease_request":
        return LeaseRequest(word, minutes(arguments.get("minutes")))
    return LeaseRelease(word) if name == "lease_release" else RequestStatus(word)


def minutes(value: object) -> int | None:
    """A whole number from 1 up; zero, negative ones, truth values, fractions and texts are refused."""
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise Malformed("minutes", "expected a whole number from 1 up (and it is deprecated)")
    return value
