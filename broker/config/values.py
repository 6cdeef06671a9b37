"""The values that may stand in lever.yaml, each with the words that say what was expected of it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from broker.config.reader import show
from broker.errors import Malformed
from broker.wire import names
from broker.wire.names import Cn, Instance

DAY_S: Final = 24 * 3600
_DURATION = re.compile(r"(?=[0-9])(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?", re.ASCII)
_HOST = re.compile(r"(?=.{1,253}\Z)(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.|\Z))+", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]*)\}")
_PLACEHOLDERS = ("agent", "id", "text")


def wrong(expected: str, found: str = "") -> PydanticCustomError:
    """What a validator raises. found: what to show when the value as a whole would not say it."""
    return PydanticCustomError("expected", "{expected}", {"expected": expected, "found": found})


def _word(parse: Callable[[object, str], str]) -> PlainValidator:
    """A word with one of the protocol's alphabets."""

    def check(raw: object) -> str:
        try:
            return parse(raw, "")
        except Malformed as error:
            quoted = "; put it in quotes" if isinstance(raw, int) else ""
            raise wrong(error.why.removeprefix("expected ") + quoted) from error

    return PlainValidator(check)


def number(low: int, high: int) -> PlainValidator:
    def check(raw: object) -> int:
        if type(raw) is not int or not low <= raw <= high:
            raise wrong(f"a whole number from {low} to {high}")
        return raw

    return PlainValidator(check)


def _truth(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise wrong("true or false")
    return raw


truth = PlainValidator(_truth)


def _duration(raw: object) -> int:
    found = _DURATION.fullmatch(raw) if isinstance(raw, str) else None
    hours, minutes, seconds = (int(found[i] or 0) for i in (1, 2, 3)) if found else (0, 0, 0)
    if not 1 <= (whole := hours * 3600 + minutes * 60 + seconds) <= DAY_S:
        raise wrong("a duration like 90s, 10m or 1h30m, from 1s to 24h")
    return whole


def _folder(info: ValidationInfo) -> Path:
    assert info.context is not None
    folder = info.context["folder"]
    assert isinstance(folder, Path)
    return folder


def _path(raw: object, info: ValidationInfo) -> Path:
    """Relative to the folder of the file, `~` expanded."""
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise wrong("a path")
    try:
        return _folder(info) / Path(raw).expanduser()
    except RuntimeError as error:
        raise wrong("a path; this ~ has no home folder") from error


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens or is reached. str() puts an IPv6 host in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def everywhere(self) -> bool:
        """Is the host the unspecified address, at which nobody can reach it?"""
        return self.host in ("0.0.0.0", "::")  # noqa: S104  # compared with, not bound to


def _address(lowest_port: int) -> PlainValidator:
    wanted = "HOST:PORT, like 127.0.0.1:8443 or [::1]:8443"

    def check(raw: object) -> Address:
        host, _, port = raw.rpartition(":") if isinstance(raw, str) else ("", "", "")
        if not re.fullmatch("[0-9]{1,5}", port, re.ASCII) or not lowest_port <= int(port) <= 65535:
            raise wrong(f"{wanted}, with a port from {lowest_port} to 65535")
        if not (plain := _host(host)):
            raise wrong(wanted)
        return Address(plain, int(port))

    return PlainValidator(check)


def _host(written: str) -> str:
    """The host without its brackets; empty if it is none. What ends in a number must be an IPv4 address."""
    bracketed = written.startswith("[") and written.endswith("]")
    try:
        address = ipaddress.ip_address(written[1:-1] if bracketed else written)
        return str(address) if bracketed == (address.version == 6) else ""
    except ValueError:
        last = written.rstrip(".").rpartition(".")[2]
        return written if _HOST.fullmatch(written) and not last.isdigit() else ""


@dataclass(frozen=True, slots=True)
class ToInbox:
    """The pointer is offered by GET /inbox."""


@dataclass(frozen=True, slots=True)
class ToCommand:
    """The pointer is given to a command. argv: placeholders {agent}, {id}, {text}; never in the first."""

    argv: tuple[str, ...]


def _delivery(raw: object, info: ValidationInfo) -> ToInbox | ToCommand:
    if raw == "inbox":
        return ToInbox()
    if not isinstance(raw, dict) or list(raw) != ["command"]:
        raise wrong('`inbox` or `command: ["program", "argument", ...]`')
    argv = raw["command"]
    if not isinstance(argv, list) or not argv or len(argv) > 64:
        raise wrong("a command as a list of 1 to 64 words", show(argv))
    for word in argv:
        _command_word(word)
    if not argv[0] or _PLACEHOLDER.search(argv[0]):
        raise wrong("a program as a command's first word, without a placeholder", show(argv[0]))
    program = str(_path(argv[0], info)) if "/" in argv[0] else argv[0]
    return ToCommand((program, *argv[1:]))


def _argv(raw: object, info: ValidationInfo) -> tuple[str, ...]:
    """A command that is given what it needs on its standard input."""
    if not isinstance(raw, list) or not raw or len(raw) > 64 or not all(isinstance(word, str) for word in raw):
        raise wrong("a command as a list of 1 to 64 words")
    for word in raw:
        if "\0" in word or len(word) > 4096:
            raise wrong("each word of a command to be text in quotes, of at most 4096 characters", show(word))
    if not raw[0]:
        raise wrong("a program as a command's first word", show(raw[0]))
    return (str(_path(raw[0], info)) if "/" in raw[0] else raw[0], *raw[1:])


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a credential lies. name: an absolute path, a variable's name, or a systemd credential's name."""

    kind: Literal["file", "environment", "credential"]
    name: str


_REFERENCE = "`{file: PATH}`, `{environment: NAME}` or `{credential: NAME}`: where it is, never what it is"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_CREDENTIAL = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,128}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
# What the transport says itself, or what decides who is asked.
_OWN_HEADERS = {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id",
                "mcp-session-id", "mcp-protocol-version", "transfer-encoding"}  # fmt: skip


def _reference(raw: object, info: ValidationInfo) -> Reference:
    """Whatever else stands here may be the secret itself: no error quotes it."""
    if not isinstance(raw, dict) or len(raw) != 1:
        raise wrong(_REFERENCE, "something else")
    ((kind, name),) = raw.items()
    if kind == "file":
        return Reference("file", str(_path(name, info)))
    if kind == "environment" and isinstance(name, str) and _VARIABLE.fullmatch(name):
        return Reference("environment", name)
    if kind == "credential" and isinstance(name, str) and _CREDENTIAL.fullmatch(name):
        return Reference("credential", name)
    raise wrong(_REFERENCE, "something else")


def unquoted(raw: object) -> object:
    """For a mapping of references: what stands in its place is not quoted either."""
    if raw is not None and not isinstance(raw, dict):
        raise wrong("a mapping of names to where their values are", "something else")
    return {} if raw is None else raw


def _variable(raw: object) -> str:
    if not isinstance(raw, str) or not _VARIABLE.fullmatch(raw):
        raise wrong("the name of an environment variable")
    return raw


def _header(raw: object) -> str:
    if not isinstance(raw, str) or not _HEADER.fullmatch(raw) or raw.lower() in _OWN_HEADERS:
        raise wrong("the name of a header that the broker does not set itself")
    return raw


def _url(raw: object) -> str:
    """https, or http to this host. Parts that may hold a secret are refused, and not quoted."""
    wanted = "a URL like https://tools.example/mcp"
    if not isinstance(raw, str) or not raw.isascii() or not raw.isprintable() or " " in raw or len(raw) > 2048:
        raise wrong(wanted)
    try:
        parts = urlsplit(raw)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise wrong(wanted) from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise wrong("a URL without a user, a query or a fragment: credentials go into `headers`", "one with them")
    if not _host(f"[{host}]" if ":" in host else host) or port == 0 or parts.scheme not in ("https", "http"):
        raise wrong(wanted)
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise wrong("https, or http to localhost")
    return raw


def _command_word(word: object) -> None:
    if not isinstance(word, str) or "\0" in word or len(word) > 4096:
        raise wrong("each word of a command to be text in quotes, of at most 4096 characters", show(word))
    for name in _PLACEHOLDER.findall(word):
        if name not in _PLACEHOLDERS:
            raise wrong("no placeholder in a command but {agent}, {id} and {text}", show(f"{{{name}}}"))


def distinct(values: Sequence[Any]) -> Sequence[Any]:
    if len(set(values)) != len(values):
        raise wrong("each entry once")
    return values


Uid = Annotated[int, number(0, 2**32 - 2)]
Location = Annotated[Path, PlainValidator(_path)]
Duration = Annotated[int, PlainValidator(_duration)]
ToolWord = Annotated[str, _word(names.tool_word)]
Delivery = Annotated[ToInbox | ToCommand, PlainValidator(_delivery)]
Argv = Annotated[tuple[str, ...], PlainValidator(_argv)]
Source = Annotated[Reference, PlainValidator(_reference)]
Variable = Annotated[str, PlainValidator(_variable)]
Header = Annotated[str, PlainValidator(_header)]
Url = Annotated[str, PlainValidator(_url)]
ServerName = Annotated[str, _word(names.cn)]
AgentName = Annotated[Cn, _word(names.cn)]
Operations = Annotated[tuple[ToolWord, ...], AfterValidator(distinct), Field(min_length=1)]
ListenAddress = Annotated[Address, _address(0)]
ReachableAddress = Annotated[Address, _address(1)]
InstanceName = Annotated[Instance, _word(names.instance)]
