"""lever.yaml: what the operator wrote, as checked values. docs/formats/config.md is the normative page."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from broker import config_reader as reader
from broker.config_reader import ConfigError as ConfigError
from broker.config_reader import Document, Problem, show
from broker.errors import Malformed
from broker.wire import names
from broker.wire.names import Cn, Instance

DAY_S: Final = 24 * 3600
HINT: Final = "every key is explained in docs/formats/config.md; a new file starts with: lever init"
_DURATION = re.compile(r"(?=[0-9])(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?", re.ASCII)
_HOST = re.compile(r"(?=.{1,253}\Z)(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.|\Z))+", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]*)\}")
_PLACEHOLDERS = ("agent", "id", "text")


def _wrong(expected: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "{expected}", {"expected": expected})


def _word(parse: Callable[[object, str], str], hint: str = "") -> PlainValidator:
    """A word with one of the protocol's alphabets."""

    def check(raw: object) -> str:
        try:
            return parse(raw, "")
        except Malformed as error:
            quoted = "; put it in quotes" if isinstance(raw, int) else ""
            raise _wrong(error.why.removeprefix("expected ") + quoted) from error

    return PlainValidator(check)


def _number(low: int, high: int) -> PlainValidator:
    def check(raw: object) -> int:
        if type(raw) is not int or not low <= raw <= high:
            raise _wrong(f"a whole number from {low} to {high}")
        return raw

    return PlainValidator(check)


def _duration(raw: object) -> int:
    found = _DURATION.fullmatch(raw) if isinstance(raw, str) else None
    hours, minutes, seconds = (int(found[i] or 0) for i in (1, 2, 3)) if found else (0, 0, 0)
    if not 1 <= (whole := hours * 3600 + minutes * 60 + seconds) <= DAY_S:
        raise _wrong("a duration like 90s, 10m or 1h30m, from 1s to 24h")
    return whole


def _path(raw: object, info: ValidationInfo) -> Path:
    """Relative to the folder of the file, `~` expanded."""
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise _wrong("a path")
    try:
        return Path(info.context["folder"]) / Path(raw).expanduser()
    except RuntimeError as error:
        raise _wrong("a path; this ~ has no home folder") from error


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
            raise _wrong(f"{wanted}, with a port from {lowest_port} to 65535")
        if not (plain := _host(host)):
            raise _wrong(wanted)
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
        raise _wrong('`inbox` or `command: ["program", "argument", ...]`')
    argv = raw["command"]
    if not isinstance(argv, list) or not argv or len(argv) > 64:
        raise _wrong("the command as a list of 1 to 64 words")
    for word in argv:
        _command_word(word)
    if not argv[0] or _PLACEHOLDER.search(argv[0]):
        raise _wrong("a program as the command's first word, without a placeholder")
    program = str(_path(argv[0], info)) if "/" in argv[0] else argv[0]
    return ToCommand((program, *argv[1:]))


def _command_word(word: object) -> None:
    if not isinstance(word, str) or "\0" in word or len(word) > 4096:
        raise _wrong(f"each word of the command to be text (in quotes) of at most 4096 characters, not {show(word)}")
    for name in _PLACEHOLDER.findall(word):
        if name not in _PLACEHOLDERS:
            raise _wrong(f"no placeholder but {{agent}}, {{id}} and {{text}} in the command, not {{{name}}}")


def _distinct(values: Sequence[Any]) -> Sequence[Any]:
    if len(set(values)) != len(values):
        raise _wrong("each entry once")
    return values


def _or(empty: Callable[[], object]) -> BeforeValidator:
    """A block whose lines are all commented out is as good as none."""
    return BeforeValidator(lambda raw: empty() if raw is None else raw)


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


Uid = Annotated[int, _number(0, 2**32 - 2)]
Location = Annotated[Path, PlainValidator(_path)]
Duration = Annotated[int, PlainValidator(_duration)]
ToolWord = Annotated[str, _word(names.tool_word)]
Delivery = Annotated[ToInbox | ToCommand, PlainValidator(_delivery)]
AgentName = Annotated[Cn, _word(names.cn)]
Operations = Annotated[tuple[ToolWord, ...], AfterValidator(_distinct), Field(min_length=1)]


class Operator(_Block):
    """Who may instruct: without this block there are no directives."""

    allowed_signers: Location
    signing_key: Location | None = None
    directive_expiry_s: Duration = Field("10m", alias="directive_expiry")  # type: ignore[assignment]  # validated
    directive_expiry_max_s: Duration = Field("24h", alias="directive_expiry_max")  # type: ignore[assignment]
    uids: tuple[Uid, ...] = ()
    socket: Location | None = None

    @field_validator("directive_expiry_max_s")
    @classmethod
    def _not_below_the_default(cls, longest: int, info: ValidationInfo) -> int:
        usual = info.data.get("directive_expiry_s", 0)
        if longest < usual:
            raise _wrong(f"at least directive_expiry, which is {usual}s")
        return longest


class Agent(_Block):
    """How one agent is told. The pointer counts as delivered when every entry of `deliver` has taken it."""

    deliver: Annotated[tuple[Delivery, ...], AfterValidator(_distinct), Field(min_length=1, max_length=8)] = (
        "inbox",  # type: ignore[assignment]  # validated
    )


class Limits(_Block):
    """What one caller may ask for, and what the daemon holds at most."""

    consume_per_minute: Annotated[int, _number(1, 6000)] = 30
    consume_repeat_s: Annotated[int, _number(0, 60)] = 60
    ticket_s: Annotated[int, _number(10, DAY_S)] = 600
    enrol_per_minute: Annotated[int, _number(1, 6000)] = 30
    renew_per_hour: Annotated[int, _number(1, 6000)] = 60
    pointers_per_minute: Annotated[int, _number(1, 6000)] = 30
    pointer_timeout_s: Annotated[int, _number(1, 300)] = 10
    pointers_in_parallel: Annotated[int, _number(1, 1024)] = 64
    max_active_per_agent: Annotated[int, _number(1, 1_000_000)] = 1000
    max_connections: Annotated[int, _number(1, 65536)] = 1024


class Config(_Block):
    """A whole lever.yaml. Every path is absolute."""

    instance: Annotated[Instance, _word(names.instance)]
    advertise: Annotated[Address, _address(1)] | None = None
    listen: Annotated[Address, _address(0)] = "127.0.0.1:8443"  # type: ignore[assignment]  # validated
    state: Location = "state"  # type: ignore[assignment]  # validated
    operator: Operator | None = None
    tools: Annotated[
        Mapping[ToolWord, Operations], _or(dict), AfterValidator(MappingProxyType)
    ] = {}
    agents: Annotated[
        Mapping[AgentName, Annotated[Agent, _or(dict)]], _or(dict), AfterValidator(MappingProxyType)
    ] = {}
    limits: Annotated[Limits, _or(dict)] = Limits()
    _folder: Path = Path()

    def model_post_init(self, context: Any, /) -> None:
        """Keep the folder that relative paths are resolved against."""
        self._folder = context["folder"]

    @field_validator("operator", mode="before")
    @classmethod
    def _written_out(cls, raw: object, info: ValidationInfo) -> object:
        return raw

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self._folder

    def declares(self, tool: str, op: str) -> bool:
        """Is this operation of this tool declared?"""
        return op in self.tools.get(tool, ())

    def deliver_to(self, cn: Cn) -> tuple[ToInbox | ToCommand, ...]:
        """How this agent is told: what its entry says, or the inbox."""
        return self.agents[cn].deliver if cn in self.agents else (ToInbox(),)
