"""The judgement of a tool call: steps 4 to 8 of docs/formats/policy.md, over a snapshot of policies and pins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.errors import Malformed
from broker.rules.authority import arguments
from broker.rules.authority.arguments import MissingOperand
from broker.rules.authority.judgement import (
    Allow,
    Call,
    Code,
    Deny,
    Judgement,
    RequireApproval,
    Resource,
    Step,
    Unresolved,
)
from broker.rules.authority.plan import Plan, PlannedRule, plan
from broker.wire import json_pointer
from broker.wire.catalogue import PinnedTool
from broker.wire.frozen import Frozen, freeze
from broker.wire.policy_terms import Policy
from broker.wire.strict_json import JsonObject, shown

MAX_RESOURCES: Final = 512
"""Of one call: nobody reads more before signing, and each request holds its own in memory."""
_UNRESOLVED: Final = {
    Unresolved.UNKNOWN_TOOL: "there is no accepted tool of this name",
    Unresolved.TOOL_CHANGED: "the server's definition is no longer the accepted one: lever tools accept, if it is fine",
    Unresolved.SERVER_UNAVAILABLE: "the tool's server does not answer for now",
}

_EXEMPT: Final = Allow("automatic", "`consent: none`")
_HARMLESS: Final = Allow("automatic", "a read that touches no account")


class _Denied(Exception):
    """Ends the way through the steps."""

    def __init__(self, step: int, code: Code, reason: str, pointer: str = "", rule: str = "") -> None:
        super().__init__(reason)
        self.step = step
        self.deny = Deny(code, reason, pointer, rule)


def judge(tool: PinnedTool | Unresolved, layers: Sequence[Policy], call: Call) -> Judgement:
    """Decide on a call. Raises nothing: whatever can't be understood is denied.

    tool: as the catalogue resolved call.tool; layers: the policies in force for the agent, the instance's first.
    """
    policies = tuple(layers)
    if not isinstance(tool, PinnedTool) or tool.qualified != call.tool:
        why = tool if isinstance(tool, Unresolved) else Unresolved.UNKNOWN_TOOL
        deny = Deny(Code(why), f"{shown(call.tool)}: {_UNRESOLVED[why]}")
        return Judgement(deny, 4, tuple(policy.digest for policy in policies))
    known = _Known(plan(policies, tool))
    try:
        _tier(known)
        _freeze(known, call)
        _table(known)
        _rules(known)
        return known.judgement(_consent(known), 9)
    except _Denied as denied:
        return known.judgement(denied.deny, denied.step)


class _Known:
    """What is known of one call so far. rules: a step for each that was looked at; asks: why it needs a signed act."""

    __slots__ = ("account", "asks", "frozen", "plan", "resources", "rules")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.asks: list[str] = []
        self.frozen: Frozen | None = None
        self.account: str | None = None
        self.resources: tuple[Resource, ...] = ()
        self.rules: Sequence[Step] = ()

    @property
    def arguments(self) -> JsonObject:
        """What the frozen bytes say."""
        assert self.frozen
        return self.frozen.value

    def judgement(self, decision: Allow | RequireApproval | Deny, step: int) -> Judgement:
        """The end of the way, at this step."""
        leased = isinstance(decision, Allow) and decision.regime == "lease" and self.account is not None
        return Judgement(
            decision,
            step,
            self.plan.policies,
            self.plan,
            self.account,
            self.plan.accounts[self.account] if leased and self.account else None,
            self.resources,
            self.frozen,
            tuple(self.rules),
        )


def _tier(known: _Known) -> None:
    if known.plan.is_denied:
        place = known.plan.place
        code = Code.DENIED_BY_DEFAULT if place.entry is None else Code.DENIED_BY_RULE
        raise _Denied(5, code, place.reason, rule=place.reason)
    if known.plan.is_asked:
        known.asks.append(known.plan.place.reason)


def _freeze(known: _Known, call: Call) -> None:
    schema = known.plan.schema
    try:
        if isinstance(schema, Malformed):
            raise schema
        frozen = freeze(call.arguments)
        schema.check(frozen.value, len(frozen.raw))
    except Malformed as error:
        raise _Denied(6, Code.INVALID_ARGUMENTS, f"{error.where} {error.why}", error.where) from error
    known.frozen = frozen


def _table(known: _Known) -> None:
    plan = known.plan
    if plan.account_problem:
        raise _Denied(7, Code.UNKNOWN_ACCOUNT, plan.account_problem)
    if plan.account is not None:
        known.account = _account(plan, known.arguments)
    for operand in plan.resources:
        try:
            known.resources += arguments.resources(operand, known.arguments, may_miss=plan.is_read)
        except MissingOperand as error:
            where = json_pointer.show(operand.pointer)
            reason = f"{where} is missing: it names what the call would change"
            raise _Denied(7, Code.MISSING_RESOURCE, reason, where) from error
        except Malformed as error:
            where = json_pointer.show(operand.pointer)
            reason = f"{where} can't be read as {operand.kind.one}: {error.why}"
            raise _Denied(7, Code.AMBIGUOUS_OPERAND, reason, where) from error
        if len(known.resources) > MAX_RESOURCES:
            where = json_pointer.show(operand.pointer)
            reason = f"{where} and what else names a target are more than {MAX_RESOURCES}: divide the call"
            raise _Denied(7, Code.INVALID_ARGUMENTS, reason, where)


def _account(plan: Plan, values: JsonObject) -> str:
    if isinstance(plan.account, str):
        if plan.account not in plan.accounts:
            raise _Denied(7, Code.UNKNOWN_ACCOUNT, f"there is no account {shown(plan.account)}")
        return plan.account
    assert plan.account is not None
    name = arguments.account(plan.account, values)
    if name is None or name not in plan.accounts:
        where = json_pointer.show(plan.account)
        raise _Denied(7, Code.UNKNOWN_ACCOUNT, f"{where} names no account that the policy knows", where)
    return name


def _rules(known: _Known) -> None:
    values = known.arguments
    if known.plan.usual.hold(values):
        known.rules = known.plan.held
        return
    known.rules = passed = []
    for planned in known.plan.rules:
        try:
            held = planned.holds(values)
        except MissingOperand as error:
            raise _denied_by(planned, ": it is missing") from error
        except Malformed as error:
            raise _denied_by(planned, f": {error.why}") from error
        if held:
            passed.append(planned.held)
        elif planned.denies:
            raise _denied_by(planned)
        else:
            passed.append(Step(8, planned.failed))
            known.asks.append(planned.failed)


def _denied_by(planned: PlannedRule, why: str = "") -> _Denied:
    return _Denied(8, Code.DENIED_BY_ARGUMENT, planned.failed + why, planned.where, planned.failed)


def _consent(known: _Known) -> Allow | RequireApproval:
    """The table of tier and class, and what the rules raised."""
    plan = known.plan
    terms = plan.accounts[known.account] if known.account else None
    if not plan.is_read and not plan.automatic:
        known.asks.append(plan.class_reason)
    if plan.is_read and terms and terms.sensitive:
        by = plan.sensitive[known.account or ""]
        known.asks.append(f"account {known.account} is sensitive in policy {by}: each read is its own act")
    if known.asks:
        return RequireApproval("; ".join(known.asks))
    if terms:
        return Allow("lease", f"a read of account {known.account}: one operation of its lease")
    return _EXEMPT if plan.automatic else _HARMLESS
