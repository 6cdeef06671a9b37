"""The shape of lever.yaml. docs/formats/config.md is the normative page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from broker.config.values import (
    DAY_S,
    Address,
    AgentName,
    Argv,
    Delivery,
    Duration,
    Header,
    InstanceName,
    ListenAddress,
    Location,
    Operations,
    ReachableAddress,
    ServerName,
    Source,
    ToCommand,
    ToInbox,
    ToolWord,
    Uid,
    Url,
    Variable,
    distinct,
    number,
    truth,
    unquoted,
    wrong,
)
from broker.wire.names import Cn

K = TypeVar("K")
V = TypeVar("V")


def _or(empty: Callable[[], object]) -> BeforeValidator:
    """A block whose lines are all commented out is as good as none."""
    return BeforeValidator(lambda raw: empty() if raw is None else raw)


def _sealed(mapping: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(mapping))


class Block(BaseModel):
    """A mapping with known keys alone. Defaults are written as an operator would write them, and read the same way."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Operator(Block):
    """Who may instruct: without this block there are no directives."""

    allowed_signers: Location
    signing_key: Location | None = None
    directive_expiry_s: Duration = Field("10m", alias="directive_expiry")  # type: ignore[assignment]
    directive_expiry_max_s: Duration = Field("24h", alias="directive_expiry_max")  # type: ignore[assignment]
    uids: Annotated[tuple[Uid, ...], AfterValidator(distinct)] = ()
    socket: Location | None = None

    @field_validator("directive_expiry_max_s")
    @classmethod
    def _not_below_the_default(cls, longest_s: int, info: ValidationInfo) -> int:
        usual_s = info.data.get("directive_expiry_s", 0)
        if longest_s < usual_s:
            raise wrong(f"at least directive_expiry, which is {usual_s}s")
        return longest_s


class Agent(Block):
    """How one agent is told. A pointer counts as delivered when every entry of `deliver` has taken it."""

    deliver: Annotated[tuple[Delivery, ...], AfterValidator(distinct), Field(min_length=1, max_length=8)] = (
        "inbox",  # type: ignore[assignment]
    )


class Limits(Block):
    """What one caller may ask for, and what the daemon holds at most."""

    consume_per_minute: Annotated[int, number(1, 1_000_000)] = 30
    calls_per_minute: Annotated[int, number(1, 1_000_000)] = 600
    consume_repeat_s: Annotated[int, number(0, 60)] = 60
    ticket_s: Annotated[int, number(10, DAY_S)] = 600
    inbox_per_minute: Annotated[int, number(1, 1_000_000)] = 120
    enrol_per_minute: Annotated[int, number(1, 1_000_000)] = 30
    renew_per_hour: Annotated[int, number(1, 1_000_000)] = 60
    pointers_per_minute: Annotated[int, number(1, 1_000_000)] = 30
    pointer_timeout_s: Annotated[int, number(1, 300)] = 10
    pointers_in_parallel: Annotated[int, number(1, 1024)] = 64
    payload_days: Annotated[int, number(3, 36500)] = 90
    max_active_per_agent: Annotated[int, number(1, 1_000_000)] = 1000
    max_connections: Annotated[int, number(1, 65536)] = 1024
    max_connections_per_agent: Annotated[int, number(1, 65536)] = 256


def _sandbox(raw: object) -> object:
    """`none` has to be written: nothing else, and not nothing either, leaves a server unconfined."""
    if raw is None:
        return {}
    if raw == "none":
        return None
    if not isinstance(raw, dict | Sandbox):
        raise wrong("`none`, or a mapping with read, write or network in it")
    return raw


class Sandbox(Block):
    """What a sandboxed server sees besides the system's programs and libraries."""

    read: Annotated[tuple[Location, ...], AfterValidator(distinct)] = ()
    write: Annotated[tuple[Location, ...], AfterValidator(distinct)] = ()
    network: Annotated[bool, truth] = False


class Server(Block):
    """One upstream MCP server: a command to start, or a URL to reach. sandbox: None is a written `none`."""

    command: Argv | None = None
    env: Annotated[Mapping[Variable, Source], BeforeValidator(unquoted), AfterValidator(_sealed)] = {}
    sandbox: Annotated[Sandbox | None, BeforeValidator(_sandbox)] = Sandbox()
    url: Url | None = None
    headers: Annotated[Mapping[Header, Source], BeforeValidator(unquoted), AfterValidator(_sealed)] = {}
    timeout_s: Annotated[int, number(1, 3600)] = 60
    max_output_bytes: Annotated[int, number(4096, 8 * 1024 * 1024)] = 1024 * 1024
    idle_s: Annotated[int, number(1, DAY_S)] = 300

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, raw: object) -> object:
        """Raised before any part is looked at, so that an error quotes no part."""
        if isinstance(raw, dict):
            if (raw.get("command") is None) == (raw.get("url") is None):
                raise wrong("a `command` to start or a `url` to reach", "both" if raw.get("url") else "neither")
            stray = ("env", "sandbox") if raw.get("command") is None else ("headers",)
            if found := [key for key in stray if key in raw]:
                raise wrong(f"no `{found[0]}` beside `{'url' if raw.get('url') else 'command'}`", f"`{found[0]}`")
        return raw


class KeptHead(Block):
    """How the newest record's digest is kept out of reach of whoever can put back the state folder."""

    keep: Argv
    fetch: Argv
    every_s: Duration = Field("60s", alias="every")  # type: ignore[assignment]


class Config(Block):
    """A whole lever.yaml. Every path is absolute."""

    instance: InstanceName
    advertise: ReachableAddress | None = None
    listen: ListenAddress = "127.0.0.1:8443"  # type: ignore[assignment]
    state: Location = "state"  # type: ignore[assignment]
    operator: Operator | None = Field(None, validate_default=False)
    tools: Annotated[Mapping[ToolWord, Operations], _or(dict), AfterValidator(_sealed)] = {}
    servers: Annotated[Mapping[ServerName, Server], _or(dict), AfterValidator(_sealed)] = {}
    agents: Annotated[Mapping[AgentName, Annotated[Agent, _or(dict)]], _or(dict), AfterValidator(_sealed)] = {}
    kept_head: KeptHead | None = Field(None, validate_default=False)
    limits: Annotated[Limits, _or(dict)] = Limits()
    _folder: Path = Path()

    def model_post_init(self, context: Any, /) -> None:
        """Keep the folder that relative paths stand in."""
        self._folder = context["folder"]

    @field_validator("listen")
    @classmethod
    def _reachable(cls, listen: Address, info: ValidationInfo) -> Address:
        if listen.everywhere and info.data.get("advertise", listen) is None:
            raise wrong("one address, or `advertise: NAME:PORT` beside it to say where agents reach this one")
        return listen

    @field_validator("operator", mode="before")
    @classmethod
    def _written_out(cls, raw: object) -> object:
        """An empty block would shut the channel silently: leave the key out for that."""
        if raw is None:
            raise wrong("a mapping with allowed_signers in it, or no `operator:` at all")
        return raw

    @property
    def folder(self) -> Path:
        """The folder of the file, absolute."""
        return self._folder

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The broker's files and folders, which no tool server may see."""
        operator = self.operator
        keys = (operator.allowed_signers, operator.signing_key) if operator else ()
        return (self.state, self.socket, self._folder / "lever.yaml", *filter(None, keys))

    @property
    def digest(self) -> str:
        """By which two readings of a file are told to mean the same to a broker, who never opens the signing key."""
        operator = self.operator and self.operator.model_copy(update={"signing_key": None})
        return sha256(repr(self.model_copy(update={"operator": operator})).encode()).hexdigest()

    @property
    def reached_at(self) -> Address:
        """Where agents reach the agent door: `advertise`, or what it listens on."""
        return self.advertise or self.listen

    @property
    def socket(self) -> Path:
        """The operator door's socket."""
        chosen = self.operator.socket if self.operator else None
        return chosen or self.state / "operator.sock"

    def declares(self, tool: str, op: str) -> bool:
        """Is this operation of this tool declared?"""
        return op in self.tools.get(tool, ())

    def deliver_to(self, cn: Cn) -> tuple[ToInbox | ToCommand, ...]:
        """How this agent is told: what its entry says, or the inbox."""
        return self.agents[cn].deliver if cn in self.agents else (ToInbox(),)
