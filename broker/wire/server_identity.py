"""Who a tool server is: what it says of itself, and how it is reached. Part of every accepted definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.strict_json import Fields, JsonObject, JsonValue

MAX_CHARACTERS = 256
MAX_URL_CHARACTERS = 2048
_FIELDS = frozenset(("name", "version", "reached"))


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """name, version: of `serverInfo`, empty where it says none. reached: see `by_command` and `by_url`."""

    name: str
    version: str
    reached: str

    @property
    def value(self) -> JsonObject:
        """As it is written beside definitions."""
        return {"name": self.name, "version": self.version, "reached": self.reached}


NOBODY = ServerIdentity("", "", "")
"""Of definitions in a file, which come from no server. No running server is this one."""


def by_command(argv: Sequence[str]) -> str:
    """How a server is reached that is started: the digest of its command line, each word as it is configured."""
    words: list[JsonValue] = [*argv]
    return f"command sha256:{sha256(strict_json.canonical(words)).hexdigest()}"


def by_url(url: str) -> str:
    """How a server is reached that runs elsewhere."""
    return url


def read(raw: JsonValue) -> ServerIdentity:
    """What was written beside definitions. Raises Malformed."""
    fields = Fields(raw, "identity", _FIELDS)
    return of(fields.value("name"), fields.value("version"), fields.value("reached"))


def of(name: JsonValue, version: JsonValue, reached: JsonValue) -> ServerIdentity:
    """What a server says of itself, fit to be shown. Raises Malformed."""
    return ServerIdentity(
        _line(name, "identity.name", MAX_CHARACTERS),
        _line(version, "identity.version", MAX_CHARACTERS),
        _line(reached, "identity.reached", MAX_URL_CHARACTERS),
    )


def _line(raw: JsonValue, where: str, most: int) -> str:
    if not isinstance(raw, str) or len(raw) > most:
        raise Malformed(where, f"expected a text of at most {most} characters")
    return raw
