"""Which tier a tool is in: deny beats approval beats allow, and the strictest layer beats the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from broker.wire.policy_terms import Policy, Tier

_STRICTEST = {Tier.DENIED: 0, Tier.APPROVAL_REQUIRED: 1, Tier.ALLOWED: 2}


@dataclass(frozen=True, slots=True)
class Place:
    """Where one policy puts a tool. entry: the entry that says so; None when it is in no list."""

    tier: Tier
    entry: str | None
    policy: str

    @property
    def reason(self) -> str:
        """In words, with the entry and the version of the policy."""
        if self.entry is None:
            return f"denied by default: in no list of policy {self.policy}"
        words = {
            Tier.DENIED: "denied by rule",
            Tier.APPROVAL_REQUIRED: "approval required by",
            Tier.ALLOWED: "allowed by",
        }
        return f"{words[self.tier]} `{self.entry}` of policy {self.policy}"


def place(layers: Sequence[Policy], tool: str) -> Place:
    """The strictest place of a tool among the layers, the instance's policy first.

    A layer that lists the tool nowhere denies it, as one alone would. No layer at all denies everything.
    """
    if not layers:
        return Place(Tier.DENIED, None, "(none)")
    places = [_place(policy, tool) for policy in layers]
    return min(places, key=lambda each: (_STRICTEST[each.tier], each.entry is None))


def _place(policy: Policy, tool: str) -> Place:
    folded = tool.casefold()
    for tier, entries in ((Tier.DENIED, policy.denied), (Tier.APPROVAL_REQUIRED, policy.approval_required)):
        for entry in entries:
            if matches(entry, folded):
                return Place(tier, entry, policy.version)
    if tool in policy.allowed:
        return Place(Tier.ALLOWED, tool, policy.version)
    return Place(Tier.DENIED, None, policy.version)


def matches(entry: str, folded: str) -> bool:
    """Does an entry with `*` (any characters, also none) and `?` (any one) match a tool's case-folded name?"""
    return _pattern(entry).fullmatch(folded) is not None


@lru_cache(maxsize=16384)
def _pattern(entry: str) -> re.Pattern[str]:
    words = {"*": ".*", "?": "."}
    # `**` means no more than `*`, and would make a name that does not match cost its length squared.
    shorter = re.sub(r"\*+", "*", entry.casefold())
    return re.compile("".join(words.get(character) or re.escape(character) for character in shorter), re.DOTALL)
