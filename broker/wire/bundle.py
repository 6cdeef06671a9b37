"""The bundle that an invited agent starts from, `bootstrap.json`. docs/formats/bundle.md is normative."""

from __future__ import annotations

import re
from dataclasses import dataclass

from broker.errors import Malformed
from broker.wire import names, strict_json
from broker.wire.names import Cn
from broker.wire.strict_json import Fields

_FIELDS = frozenset(("ticket", "broker_ca", "broker_url", "agent_cn"))
_TICKET = re.compile(r"[A-Za-z0-9_-]{16,256}")
_PEM = re.compile(
    r"(?:-----BEGIN CERTIFICATE-----\r?\n(?:[A-Za-z0-9+/=]{1,76}\r?\n)+-----END CERTIFICATE-----(?:\r?\n|\Z))+"
)
_URL = re.compile(r"https://(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?")
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Bundle:
    """What an agent needs to enrol. ticket: a secret, single use; broker_ca: PEM text; broker_url: https, no path."""

    ticket: str
    broker_ca: str
    broker_url: str
    agent_cn: Cn


def encode(bundle: Bundle) -> bytes:
    """The file's bytes. Raises Malformed for a bundle that `parse` would refuse."""
    raw = strict_json.canonical(
        {
            "ticket": bundle.ticket,
            "broker_ca": bundle.broker_ca,
            "broker_url": bundle.broker_url,
            "agent_cn": bundle.agent_cn,
        }
    )
    parse(raw)
    return raw + b"\n"


def parse(raw: bytes) -> Bundle:
    """The bundle in a file's bytes; errors never repeat the ticket. Raises Malformed."""
    fields = Fields(strict_json.parse(raw, "bundle"), "bundle", _FIELDS)
    ticket, broker_ca = fields.text("ticket"), fields.text("broker_ca")
    if not _TICKET.fullmatch(ticket):
        raise Malformed("ticket", "expected 16 to 256 of A-Z a-z 0-9 _ -")
    if not _PEM.fullmatch(broker_ca):
        raise Malformed("broker_ca", "expected PEM certificates and nothing else")
    return Bundle(ticket, broker_ca, _url(fields), names.cn(fields.value("agent_cn"), "agent_cn"))


def _url(fields: Fields) -> str:
    url = fields.text("broker_url")
    found = _URL.fullmatch(url)
    if not found or not 1 <= int(found[1] or 443) <= _MAX_PORT:
        raise Malformed("broker_url", "expected https://HOST:PORT")
    return url
