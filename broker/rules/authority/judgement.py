"""What a judgement of a call says."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from broker.wire.frozen import Frozen
from broker.wire.json_pointer import Pointer
from broker.wire.names import Cn, Digest
from broker.wire.operands import Kind, Scalar
from broker.wire.policy_terms import Account, Tier, ToolClass
from broker.wire.strict_json import JsonValue

if TYPE_CHECKING:
    from broker.rules.authority.plan import Plan


class Code(StrEnum):
    """Why a call is refused, in a word."""

    UNKNOWN_TOOL = "unknown_tool"
    TOOL_CHANGED = "tool_changed"
    SERVER_UNAVAILABLE = "server_unavailable"
    DENIED_BY_RULE = "denied_by_rule"
    DENIED_BY_DEFAULT = "denied_by_default"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_ACCOUNT = "unknown_account"
    AMBIGUOUS_OPERAND = "ambiguous_operand"
    MISSING_RESOURCE = "missing_resource"
    DENIED_BY_ARGUMENT = "denied_by_argument"


class Unresolved(StrEnum):
    """Why there is no pinned tool to judge a call by."""

    UNKNOWN_TOOL = "unknown_tool"
    TOOL_CHANGED = "tool_changed"
    SERVER_UNAVAILABLE = "server_unavailable"


@dataclass(frozen=True, slots=True)
class Call:
    """What an agent asks for. tool: its qualified name; arguments: what strict JSON made of them."""

    agent: Cn
    tool: str
    arguments: JsonValue


Regime: TypeAlias = Literal["automatic", "lease", "act"]


class Allow(NamedTuple):
    """By itself (automatic), or as an operation of the account's lease."""

    regime: Literal["automatic", "lease"]
    reason: str


@dataclass(frozen=True, slots=True)
class RequireApproval:
    """One signed act, and no more than one, whatever asks for it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Deny:
    """pointer: the argument that it is about, where it is about one; rule: what of which policy says so, in words that
    hold nothing of the arguments, empty where no policy does."""

    code: Code
    reason: str
    pointer: str = ""
    rule: str = field(default="", compare=False)


class Resource(NamedTuple):
    """One thing that a call touches, in its normal form."""

    pointer: Pointer
    kind: Kind
    value: Scalar


class Step(NamedTuple):
    """One numbered step on the way, in words. The numbers are those of docs/formats/policy.md."""

    number: int
    text: str


class Judgement(NamedTuple):
    """The decision on a call, all that it rests on, and all that an act would be bound to.

    What lies beyond the step that refused is None or empty. ended: the step that decided; lease: the account's terms
    where the regime is a lease; rules: the steps of the argument rules.
    """

    decision: Allow | RequireApproval | Deny
    ended: int
    policies: tuple[Digest, ...]
    plan: Plan | None = None
    account: str | None = None
    lease: Account | None = None
    resources: tuple[Resource, ...] = ()
    frozen: Frozen | None = None
    rules: tuple[Step, ...] = ()

    @property
    def tier(self) -> Tier | None:
        """Of the tool, by the strictest layer."""
        return self.plan.place.tier if self.plan else None

    @property
    def tool_class(self) -> ToolClass | None:
        """Of the tool, by the table and its annotations."""
        return self.plan.tool_class if self.plan else None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The way to the decision in words, which are made when somebody reads them."""
        way = [self.plan.resolved, self.plan.tier] if self.plan else []
        if self.frozen:
            fit = f"the arguments fit, {len(self.frozen.raw)} bytes: sha256:{self.frozen.digest.hex()}"
            way.append(Step(6, fit))
        if self.plan:
            touches = f"account {self.account}" if self.account else "no account"
            way.append(Step(7, f"{self.plan.class_reason}; {touches}; {len(self.resources)} resource(s)"))
        before = (step for step in way if step.number < self.ended)
        return (*before, *self.rules, Step(self.ended, self._last()))

    def _last(self) -> str:
        match self.decision:
            case Allow("automatic", reason):
                return f"automatic: {reason}"
            case RequireApproval(reason):
                return f"needs a signed act: {reason}"
            case decision:
                return decision.reason

    @property
    def regime(self) -> Regime | None:
        """Which consent the call needs; None when it is denied."""
        match self.decision:
            case Allow(regime):
                return regime
            case RequireApproval():
                return "act"
            case Deny():
                return None
