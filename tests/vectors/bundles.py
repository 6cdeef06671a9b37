"""Bundles: what an agent may enrol with, and what it must not believe."""

from __future__ import annotations

import json
from typing import Any

from tests.vectors.case import Case, File, refused
from tests.vectors.csrs import authority_pem

_CA = authority_pem()
_GOOD: dict[str, Any] = {
    "ticket": "gkqnEsoradu8N-YtEJkVBCOuWOHEac4BfDzvZS3ypPo",
    "broker_ca": _CA,
    "broker_url": "https://broker.example:8443",
    "agent_cn": "worker-a",
}
_TAKEN: dict[str, dict[str, Any]] = {
    "as it is": {},
    "the shortest ticket": {"ticket": "t" * 16},
    "the longest ticket": {"ticket": "t" * 256},
    "two certificates": {"broker_ca": _CA * 2},
    "lines that end as on Windows": {"broker_ca": _CA.replace("\n", "\r\n")},
    "no port": {"broker_url": "https://broker.example"},
    "IPv6": {"broker_url": "https://[::1]:8443"},
    "the longest name": {"agent_cn": "a" * 63},
}
_REFUSED: dict[str, tuple[str, Any]] = {
    "a ticket that is too short": ("ticket", "t" * 15),
    "a ticket that is too long": ("ticket", "t" * 257),
    "a ticket with another letter": ("ticket", "t" * 42 + "+"),
    "a ticket with a line break": ("ticket", "t" * 42 + "\n"),
    "a number for a ticket": ("ticket", 7),
    "no authority": ("broker_ca", ""),
    "words before the authority": ("broker_ca", "x" + _CA),
    "words behind the authority": ("broker_ca", _CA + "x"),
    "a private key beside the authority": ("broker_ca", _CA + _CA.replace("CERTIFICATE", "PRIVATE KEY")),
    "null for an authority": ("broker_ca", None),
    "an address without TLS": ("broker_url", "http://broker.example:8443"),
    "an address with a path": ("broker_url", "https://broker.example:8443/"),
    "an address with a query": ("broker_url", "https://broker.example:8443?x"),
    "an address with a user": ("broker_url", "https://a@broker.example:8443"),
    "port 0": ("broker_url", "https://broker.example:0"),
    "port 65536": ("broker_url", "https://broker.example:65536"),
    "a host that looks like another": ("broker_url", "https://br\u043eker.example"),
    "an address with a line break": ("broker_url", "https://broker.example\n"),
    "a name with a capital": ("agent_cn", "Worker"),
    "an empty name": ("agent_cn", ""),
    "a name of 64": ("agent_cn", "a" * 64),
    "an unknown field": ("more", 1),
}


def _bytes(**changes: Any) -> bytes:
    return json.dumps(_GOOD | changes).encode()


def _without(name: str) -> bytes:
    return json.dumps({key: value for key, value in _GOOD.items() if key != name}).encode()


FILE = File(
    "bundles",
    "The bytes of a `bootstrap.json`. `where` is the field that the refusal must name.",
    "docs/formats/bundle.md",
    (
        *(Case(name, _bytes(**changes)) for name, changes in _TAKEN.items()),
        *(refused(name, _bytes(**{field: value}), field) for name, (field, value) in _REFUSED.items()),
        *(refused(f"no {name}", _without(name), name) for name in _GOOD),
        refused("a key twice", _bytes()[:-1] + b',"agent_cn":"worker-b"}', "bundle"),
        refused("a key twice, spelt otherwise", _bytes()[:-1] + b',"agent\\u005fcn":"worker-b"}', "bundle"),
        refused("two documents", _bytes() * 2, "bundle"),
        refused("a byte order mark", b"\xef\xbb\xbf" + _bytes(), "bundle"),
        refused("an array", b"[" + _bytes() + b"]", "bundle"),
        refused("cut short", _bytes()[:-1], "bundle"),
        refused("nothing", b"", "bundle"),
    ),
)
