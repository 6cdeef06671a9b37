"""What the layers of policy say of one pinned tool, put together once: the strictest of all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from broker.errors import Malformed
from broker.rules.authority import arguments, schema, tiers
from broker.rules.authority.arguments import Check
from broker.rules.authority.judgement import Step
from broker.rules.authority.schema import Schema
from broker.rules.authority.tiers import Place
from broker.rules.authority.usual import Usual
from broker.wire import json_pointer
from broker.wire.catalogue import PinnedTool
from broker.wire.json_pointer import Pointer
from broker.wire.names import Digest
from broker.wire.policy_terms import Account, Budgets, Operand, Otherwise, Policy, Rule, Tier, ToolClass, ToolEntry

_NO_ENTRY = ToolEntry()


@dataclass(frozen=True, slots=True)
class PlannedRule:
    """An argument rule with its words, made once."""

    holds: Check
    where: str
    denies: bool
    held: Step
    failed: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is known of a call before its arguments are.

    is_denied, is_asked: by the tier alone; schema: or why there is none; account: of the instance's table, and None
    with `account_problem` where two layers name different ones; automatic: a mutation that needs no consent;
    sensitive: accounts by the policy that says so; usual: the rules once more, to ask for all at once.
    """

    policies: tuple[Digest, ...]
    place: Place
    is_denied: bool
    is_asked: bool
    resolved: Step
    tier: Step
    schema: Schema | Malformed
    tool_class: ToolClass
    is_read: bool
    class_reason: str
    automatic: bool
    account: str | Pointer | None
    account_problem: str
    accounts: dict[str, Account]
    sensitive: dict[str, str]
    resources: tuple[Operand, ...]
    rules: tuple[PlannedRule, ...]
    usual: Usual
    held: tuple[Step, ...]


@lru_cache(maxsize=4096)
def plan(layers: tuple[Policy, ...], tool: PinnedTool) -> Plan:
    """The plan for a tool under these layers, the instance's policy first."""
    name = tool.qualified
    entries = [policy.tools.get(name) for policy in layers]
    present = [entry for entry in entries if entry]
    base = (entries[0] if entries else None) or _NO_ENTRY
    tool_class, class_reason = _class(tool, base, present)
    where = tiers.place(layers, name)
    rules = _rules(layers, entries)
    others = {entry.account for entry in present if entry.account is not None} - {base.account}
    return Plan(
        policies=tuple(policy.digest for policy in layers),
        place=where,
        is_denied=where.tier is Tier.DENIED,
        is_asked=where.tier is Tier.APPROVAL_REQUIRED,
        resolved=Step(4, f"{name} is pinned: sha256:{tool.digest.hex()}"),
        tier=Step(5, f"{where.reason}"),
        schema=_schema(tool),
        tool_class=tool_class,
        is_read=tool_class is ToolClass.READ,
        class_reason=f"{class_reason} (policy {_classed_by(layers, entries)})",
        automatic=_is_automatic(tool, base, present),
        account=base.account,
        account_problem="the layers name different accounts for this tool" if others else "",
        accounts=accounts(layers),
        sensitive={
            name: policy.version
            for policy in reversed(layers)
            for name, account in policy.accounts.items()
            if account.sensitive
        },
        resources=tuple(dict.fromkeys(operand for entry in present for operand in entry.resources)),
        rules=tuple(rules),
        usual=Usual.of([rule for entry in present for rule in entry.rules]),
        held=tuple(rule.held for rule in rules),
    )


def _schema(tool: PinnedTool) -> Schema | Malformed:
    try:
        return schema.schema_of(tool)
    except Malformed as error:
        return error


def _class(tool: PinnedTool, base: ToolEntry, present: Sequence[ToolEntry]) -> tuple[ToolClass, str]:
    """A read only when the instance's table says so, and no layer and no annotation says otherwise."""
    if base.tool_class is None:
        return ToolClass.MUTATION, "unclassified, so a mutation"
    if any(entry.tool_class is ToolClass.MUTATION for entry in present):
        return ToolClass.MUTATION, "a mutation by the table"
    if tool.hint("destructiveHint"):
        if base.reviewed == tool.digest:
            return ToolClass.READ, "a read by the table; its server says that it destroys, and it was reviewed"
        told = "a mutation until it is reviewed" if base.reviewed is None else "not the definition that was reviewed"
        return ToolClass.MUTATION, f"a read by the table, but its server says that it destroys: {told}"
    return ToolClass.READ, "a read by the table"


def _classed_by(layers: Sequence[Policy], entries: Sequence[ToolEntry | None]) -> str:
    """The version of the policy whose table decides the class: the first that says mutation, else the instance's."""
    pairs = zip(layers, entries, strict=True)
    found = next((policy for policy, entry in pairs if entry and entry.tool_class is ToolClass.MUTATION), None)
    return (found or layers[0]).version if layers else "(none)"


def _is_automatic(tool: PinnedTool, base: ToolEntry, present: Sequence[ToolEntry]) -> bool:
    """Is this mutation exempt from consent: by every table that speaks of it, and not against its own annotations?

    As in MCP, a tool that does not say whether it destroys, or reaches into an open world, does.
    """
    exempt = base.needs_no_consent and all(entry.needs_no_consent for entry in present)
    tame = tool.hint("destructiveHint") is False and tool.hint("openWorldHint") is False
    return exempt and tame


def _rules(layers: Sequence[Policy], entries: Sequence[ToolEntry | None]) -> list[PlannedRule]:
    """Those that deny first: of two that do not hold, the stricter decides."""
    found = [
        _planned(rule, policy.version)
        for policy, entry in zip(layers, entries, strict=True)
        for rule in (entry.rules if entry else ())
    ]
    return sorted(found, key=lambda each: not each.denies)


def _planned(rule: Rule, policy: str) -> PlannedRule:
    where = json_pointer.show(rule.pointer)
    said = f"{json.dumps(where)[1:-1]} {arguments.words(rule.test)}"
    failed = f"argument rule not met: {said}, else {rule.otherwise}, of policy {policy}"
    denies = rule.otherwise is Otherwise.DENY
    check = arguments.check_of(rule.pointer, rule.test)
    return PlannedRule(check, where, denies, Step(8, f"holds: {said}"), failed)


def accounts(layers: Sequence[Policy]) -> dict[str, Account]:
    """The instance's accounts, each as strict as any layer has it."""
    if not layers:
        return {}
    return {
        name: _strictest([policy.accounts[name] for policy in layers if name in policy.accounts])
        for name in layers[0].accounts
    }


def _strictest(found: Sequence[Account]) -> Account:
    return Account(
        any(account.sensitive for account in found),
        min(account.lease_seconds for account in found),
        min(account.lease_operations for account in found),
    )


def budgets(layers: Sequence[Policy]) -> Budgets:
    """The lowest limit of each kind that any layer sets."""

    def lowest(limits: Sequence[int | None]) -> int | None:
        return min((limit for limit in limits if limit is not None), default=None)

    return Budgets(
        lowest([policy.budgets.max_input_tokens for policy in layers]),
        lowest([policy.budgets.max_output_tokens for policy in layers]),
        lowest([policy.budgets.max_tool_calls for policy in layers]),
        lowest([policy.budgets.max_wall_time_secs for policy in layers]),
        lowest([policy.budgets.max_cost_cents for policy in layers]),
    )
