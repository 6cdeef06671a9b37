"""What changes from one policy to another, and in which direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Literal, NamedTuple, TypeAlias

from broker.rules.authority import arguments, tiers
from broker.wire import json_pointer
from broker.wire.policy_terms import Account, Budgets, Policy, Tier, ToolClass, ToolEntry

Effect: TypeAlias = Literal["wider", "stricter", "other"]
_WIDTH = {Tier.DENIED: 0, Tier.APPROVAL_REQUIRED: 1, Tier.ALLOWED: 2}
_NO_ENTRY, _NO_ACCOUNT = ToolEntry(), Account()


class Change(NamedTuple):
    """One thing that is not as it was. effect: what it does to an agent's rights."""

    what: str
    old: str
    new: str
    effect: Effect


def changes(old: Policy, new: Policy) -> Iterator[Change]:
    """Tools first, by name; then patterns, the table, accounts, budgets."""
    yield from _tiers(old, new)
    yield from _patterns(old, new)
    for name in sorted(old.tools.keys() | new.tools.keys()):
        yield from _entry(name, old.tools.get(name, _NO_ENTRY), new.tools.get(name, _NO_ENTRY))
    yield from _accounts(old, new)
    for limit in fields(Budgets):
        yield from _number(f"budget {limit.name}", getattr(old.budgets, limit.name), getattr(new.budgets, limit.name))


def _tiers(old: Policy, new: Policy) -> Iterator[Change]:
    """Every tool that either names exactly, as the whole of each policy places it."""
    named = {name for policy in (old, new) for name in (*_exact(policy), *policy.tools)}
    for name in sorted(named):
        before, after = (tiers.place([policy], name) for policy in (old, new))
        was, now = (str(each.tier) if each.entry else "in no list" for each in (before, after))
        if was != now:
            yield Change(name, was, now, _direction(_WIDTH[before.tier], _WIDTH[after.tier]))


def _exact(policy: Policy) -> Iterator[str]:
    for entry in (*policy.allowed, *policy.approval_required, *policy.denied):
        if not _is_pattern(entry):
            yield entry


def _is_pattern(entry: str) -> bool:
    return "*" in entry or "?" in entry


def _patterns(old: Policy, new: Policy) -> Iterator[Change]:
    lists: tuple[tuple[Tier, Any, Any], ...] = (
        (Tier.APPROVAL_REQUIRED, old.approval_required, new.approval_required),
        (Tier.DENIED, old.denied, new.denied),
    )
    for tier, before, after in lists:
        for entry in sorted(set(before) ^ set(after)):
            if _is_pattern(entry):
                gone = entry in before
                effect: Effect = "other" if tier is not Tier.DENIED else "wider" if gone else "stricter"
                yield Change(
                    f"pattern {entry}", str(tier) if gone else "absent", "absent" if gone else str(tier), effect
                )


def _entry(name: str, old: ToolEntry, new: ToolEntry) -> Iterator[Change]:
    if old.tool_class is not new.tool_class:
        is_read = (each.tool_class is ToolClass.READ for each in (old, new))
        yield Change(
            f"{name} class", str(old.tool_class or "none"), str(new.tool_class or "none"), _direction(*is_read)
        )
    if old.needs_no_consent is not new.needs_no_consent:
        was, now = ("none" if each.needs_no_consent else "needed" for each in (old, new))
        yield Change(f"{name} consent", was, now, _direction(old.needs_no_consent, new.needs_no_consent))
    if old.reviewed != new.reviewed:
        was, now = (f"sha256:{each.reviewed.hex()}" if each.reviewed else "none" for each in (old, new))
        other = old.reviewed is not None and new.reviewed is not None
        yield Change(
            f"{name} reviewed", was, now, "other" if other else _direction(*map(bool, (old.reviewed, new.reviewed)))
        )
    if old.account != new.account:
        yield Change(f"{name} account", _account(old), _account(new), "other")
    yield from _sets(f"{name} resource", set(map(_operand, old.resources)), set(map(_operand, new.resources)))
    yield from _sets(f"{name} rule", set(map(_rule, old.rules)), set(map(_rule, new.rules)))


def _account(entry: ToolEntry) -> str:
    return json_pointer.show(entry.account) if isinstance(entry.account, tuple) else entry.account or "none"


def _operand(operand: Any) -> str:
    return f"{json_pointer.show(operand.pointer)} as {operand.kind.one}"


def _rule(rule: Any) -> str:
    return f"{json_pointer.show(rule.pointer)} {arguments.words(rule.test)}, else {rule.otherwise}"


def _sets(what: str, old: set[str], new: set[str]) -> Iterator[Change]:
    """Of things that only restrict."""
    for each in sorted(old - new):
        yield Change(what, each, "absent", "wider")
    for each in sorted(new - old):
        yield Change(what, "absent", each, "stricter")


def _accounts(old: Policy, new: Policy) -> Iterator[Change]:
    for name in sorted(old.accounts.keys() | new.accounts.keys()):
        before, after = old.accounts.get(name), new.accounts.get(name)
        if before is None or after is None:
            was, now = ("absent" if each is None else "known" for each in (before, after))
            yield Change(f"account {name}", was, now, "wider" if before is None else "stricter")
        before, after = before or _NO_ACCOUNT, after or _NO_ACCOUNT
        if before.sensitive is not after.sensitive:
            was, now = (str(each.sensitive).lower() for each in (before, after))
            yield Change(f"account {name} sensitive", was, now, _direction(after.sensitive, before.sensitive))
        yield from _number(f"account {name} lease_seconds", before.lease_seconds, after.lease_seconds)
        yield from _number(f"account {name} lease_operations", before.lease_operations, after.lease_operations)


def _number(what: str, old: int | None, new: int | None) -> Iterator[Change]:
    """A limit: the more, the wider, and none is the widest."""
    if old != new:
        was, now = (float("inf") if each is None else each for each in (old, new))
        yield Change(what, _limit(old), _limit(new), _direction(was, now))


def _limit(limit: int | None) -> str:
    return "no limit" if limit is None else str(limit)


def _direction(old: float, new: float) -> Effect:
    return "other" if old == new else "wider" if new > old else "stricter"
