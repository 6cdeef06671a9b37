"""What a tool server is, as far as this room needs it: the configuration's values have these shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol


class Reference(Protocol):
    """Where a credential lies. name: a path, a variable's name, or a systemd credential's name."""

    @property
    def kind(self) -> Literal["file", "environment", "credential"]: ...
    @property
    def name(self) -> str: ...


class Sandbox(Protocol):
    """What a sandboxed server sees besides the system's own programs and libraries."""

    @property
    def read(self) -> Sequence[Path]: ...
    @property
    def write(self) -> Sequence[Path]: ...
    @property
    def network(self) -> bool: ...


class Server(Protocol):
    """One upstream server: a `command` to start or a `url` to reach. sandbox: None is a written `sandbox: none`."""

    @property
    def command(self) -> Sequence[str] | None: ...
    @property
    def url(self) -> str | None: ...
    @property
    def env(self) -> Mapping[str, Reference]: ...
    @property
    def headers(self) -> Mapping[str, Reference]: ...
    @property
    def sandbox(self) -> Sandbox | None: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def max_output_bytes(self) -> int: ...
    @property
    def idle_s(self) -> float: ...
