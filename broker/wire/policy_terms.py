"""What a policy says, as values. docs/formats/policy.md is the normative page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from broker.wire.json_pointer import Pointer
from broker.wire.names import Digest
from broker.wire.operands import Kind

LEASE_SECONDS: Final = 90
LEASE_OPERATIONS: Final = 20
MAX_LEASE_SECONDS: Final = 300
MAX_LEASE_OPERATIONS: Final = 100
_SHOWN_HEX: Final = 12


class Tier(StrEnum):
    """The three lists of a policy; a tool in none of them is denied too."""

    ALLOWED = "allowed"
    APPROVAL_REQUIRED = "approval_required"
    DENIED = "denied"


class ToolClass(StrEnum):
    """What a tool does to the world."""

    READ = "read"
    MUTATION = "mutation"


class Otherwise(StrEnum):
    """What a call becomes that an argument rule does not hold for."""

    APPROVAL = "approval"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Equals:
    """The operand is one of these. A number is never a text, nor a truth value a number."""

    values: tuple[bool | int | str, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """The operand is a path at or under one of these normal ones."""

    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The operand is a whole number, min <= it <= max; None is no bound."""

    min: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class AtMost:
    """The operand is a text of at most so many characters, or an array of at most so many elements."""

    length: int


@dataclass(frozen=True, slots=True)
class HostIn:
    """The operand is one of these hosts, or a URL at one."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no operand, not even null."""


Test: TypeAlias = Equals | Within | Between | AtMost | HostIn | Absent


@dataclass(frozen=True, slots=True)
class Rule:
    """An argument rule: where its test does not hold, the call is denied or needs approval. It never widens."""

    pointer: Pointer
    test: Test
    otherwise: Otherwise


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument that names what a call touches."""

    pointer: Pointer
    kind: Kind


@dataclass(frozen=True, slots=True)
class ToolEntry:
    """What the table says of one tool.

    account: its name, or where the arguments name it, or None: it touches none. tool_class None: not classified.
    reviewed: the definition that is a read though its server says that it destroys.
    """

    tool_class: ToolClass | None = None
    account: str | Pointer | None = None
    resources: tuple[Operand, ...] = ()
    needs_no_consent: bool = False
    rules: tuple[Rule, ...] = ()
    reviewed: Digest | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """What is particular about reading one account. A sensitive one has no lease."""

    sensitive: bool = False
    lease_seconds: int = LEASE_SECONDS
    lease_operations: int = LEASE_OPERATIONS


@dataclass(frozen=True, slots=True)
class Budgets:
    """What one run may use; None is no limit."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    max_wall_time_secs: int | None = None
    max_cost_cents: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of a policy. Two are the same when their digest is: the SHA-256 of their canonical bytes."""

    digest: Digest
    raw: bytes = field(compare=False, repr=False)
    name: str = field(compare=False)
    allowed: frozenset[str] = field(compare=False, repr=False)
    approval_required: tuple[str, ...] = field(compare=False, repr=False)
    denied: tuple[str, ...] = field(compare=False, repr=False)
    tools: Mapping[str, ToolEntry] = field(compare=False, repr=False)
    accounts: Mapping[str, Account] = field(compare=False, repr=False)
    budgets: Budgets = field(compare=False, repr=False)

    @property
    def version(self) -> str:
        """Its name and the first digits of its digest, for people."""
        return f"{self.name}@{self.digest.hex()[:_SHOWN_HEX]}"
