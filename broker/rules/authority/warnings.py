"""What is not wrong with a policy, and yet may not be meant."""

from __future__ import annotations

from collections.abc import Iterator

from broker.rules.authority import tiers
from broker.rules.authority.budgets import OF_USAGE, UNREPORTED_S
from broker.wire.policy_terms import Policy, Tier, ToolClass

_MEANT: dict[str, tuple[str, ...]] = {
    "deletion": ("delete", "remove", "drop", "purge", "destroy"),
    "administration": ("admin", "sudo", "grant", "shell"),
}


def warnings(policy: Policy) -> Iterator[str]:
    """One sentence for each."""
    yield from _open_words(policy)
    yield from _shadowed(policy)
    for name, entry in policy.tools.items():
        if tiers.place([policy], name).entry is None:
            yield f"`{name}` has an entry in `tools`, and is in no list: it is denied by default"
        if entry.needs_no_consent:
            yield f"`{name}` is a mutation that needs no consent: it must change nothing outside its own scratch space"
        if entry.tool_class is ToolClass.MUTATION and not entry.resources and not entry.needs_no_consent:
            yield f"`{name}` is a mutation without `resources`: an act shows its arguments, but no target apart"
    for name in sorted(policy.allowed - policy.tools.keys()):
        yield f"`{name}` is allowed and has no entry in `tools`: unclassified, each call needs a signed act"
    ids = [name for name, entry in policy.tools.items() if any(each.kind == "id" for each in entry.resources)]
    if ids:
        yield (
            f"resources of kind id are whatever the agent writes, and stand in clear in journal and receipts: "
            f"no secret may be one ({', '.join(f'`{name}`' for name in ids)})"
        )
    if reported := [limit for limit in OF_USAGE if getattr(policy.budgets, limit) is not None]:
        yield (
            f"`{reported[0]}` needs figures from the host: without a proxy that reports them (`lever run usage`), "
            f"every call is refused {UNREPORTED_S} s after a run began"
        )


def _open_words(policy: Policy) -> Iterator[str]:
    """Does the denied list stop deletion and administration, whatever tools a server comes up with?"""
    for meant, words in _MEANT.items():
        missing = [word for word in words if not _is_denied_by_rule(policy, f"any.{word}_any")]
        if missing:
            patterns = ", ".join(f'"*.*{word}*"' for word in missing)
            yield f"tools for {meant} are not denied by rule; add to `denied`: {patterns}"


def _is_denied_by_rule(policy: Policy, tool: str) -> bool:
    place = tiers.place([policy], tool)
    return place.tier is Tier.DENIED and place.entry is not None


def _shadowed(policy: Policy) -> Iterator[str]:
    """An entry that a stricter one always beats."""
    for entry in sorted(policy.allowed) + [each for each in policy.approval_required if not set(each) & set("*?")]:
        written = Tier.ALLOWED if entry in policy.allowed else Tier.APPROVAL_REQUIRED
        place = tiers.place([policy], entry)
        if place.tier is not written:
            yield f"`{entry}` in {written} means nothing: {place.tier} by `{place.entry}`, which is stricter"
