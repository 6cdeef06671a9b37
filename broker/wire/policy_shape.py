"""From a JSON value to what a policy says, or to every problem in it at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker.errors import Malformed
from broker.wire import names, policy_rules
from broker.wire.json_pointer import show
from broker.wire.names import Digest
from broker.wire.notes import Notes, Path, Problem, found
from broker.wire.policy_terms import (
    LEASE_OPERATIONS,
    LEASE_SECONDS,
    MAX_LEASE_OPERATIONS,
    MAX_LEASE_SECONDS,
    Account,
    Budgets,
    Tier,
    ToolClass,
    ToolEntry,
)
from broker.wire.strict_json import JsonValue

VERSION: Final = 1
TIERS: Final = tuple(Tier)
LIMITS: Final = ("max_input_tokens", "max_output_tokens", "max_tool_calls", "max_wall_time_secs", "max_cost_cents")
MAX_LIMIT: Final = 10**12
_REQUIRED = ("v", "name", "default_action", "tool_allowlist")
_OPTIONAL = ("tools", "accounts", "budgets")
_LISTS = ("tool_allowlist",)
_TOOL_KEYS = ("class", "account", "resources", "consent", "rules", "reviewed")
_EXACT = re.compile(r"[a-z0-9-]{1,63}\.[A-Za-z0-9._:/-]{1,128}")
_GLOB = re.compile(r"[A-Za-z0-9?*-]{1,63}\.[A-Za-z0-9._:/?*-]{1,128}")
_REVIEWED = re.compile(r"sha256:([0-9a-f]{64})")
_ACCOUNT = re.compile(r"[A-Za-z0-9._@+-]{1,64}")


class NotAPolicy(Malformed):
    """A value that is no policy. problems: all of them, with their paths; where: the first one's, as a JSON Pointer."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        where = show(first.path).encode("ascii", "backslashreplace").decode()  # a key may be in any script
        super().__init__(where or "policy", first.text)


@dataclass(frozen=True, slots=True)
class Contents:
    """What stands in a policy, but for its digest."""

    name: str
    lists: dict[Tier, tuple[str, ...]]
    tools: dict[str, ToolEntry]
    accounts: dict[str, Account]
    budgets: Budgets


def contents(value: JsonValue) -> Contents:
    """What a policy says. Raises NotAPolicy with everything that is wrong."""
    notes = Notes()
    top = notes.fields(value, (), _REQUIRED, _OPTIONAL)
    name = notes.taken(names.cn, top["name"], ("name",)) if "name" in top else None
    if "v" in top and (type(top["v"]) is not int or top["v"] != VERSION):
        notes.wrong(("v",), f"{VERSION}, the version of this format", top["v"])
    if top.get("default_action", "deny") != "deny":
        notes.wrong(("default_action",), "deny: a tool in no list is never callable", top["default_action"])
    lists = _lists(notes, top["tool_allowlist"]) if "tool_allowlist" in top else {}
    accounts = _accounts(notes, top.get("accounts", {}))
    tools = _tools(notes, top.get("tools", {}), accounts)
    budgets = _budgets(notes, top.get("budgets", {}))
    if notes.problems or name is None:
        raise NotAPolicy(notes.problems)
    return Contents(name, lists, tools, accounts, budgets)


def _lists(notes: Notes, value: JsonValue) -> dict[Tier, tuple[str, ...]]:
    """The three lists; no tool in two of them, nor twice in one, however it is spelt."""
    members = notes.fields(value, _LISTS, TIERS, ())
    seen: dict[str, Tier] = {}
    return {tier: tuple(_entries(notes, tier, members.get(tier, []), seen)) for tier in TIERS}


def _entries(notes: Notes, tier: Tier, value: JsonValue, seen: dict[str, Tier]) -> Iterator[str]:
    """The entries of one list. seen: those before, in one case."""
    top: Path = (*_LISTS, tier)
    for number, entry in enumerate(notes.items(value, top, expected="a list of tools; write [] for an empty one")):
        path = (*top, number)
        if not isinstance(entry, str):
            notes.wrong(path, "a tool like server.tool", entry)
        elif _is_entry(notes, entry, tier, path):
            if before := seen.get(entry.casefold()):
                notes.note(path, f"expected each tool in one list, once; found {found(entry)}, which is in {before}")
            seen.setdefault(entry.casefold(), tier)
            yield entry


def _is_entry(notes: Notes, entry: str, tier: Tier, path: Path) -> bool:
    if (_EXACT if tier is Tier.ALLOWED else _GLOB).fullmatch(entry):
        return True
    if "." not in entry:
        notes.wrong(path, f"the server's name before the tool's, like server.{_example(entry)}", entry)
    elif tier is Tier.ALLOWED and _GLOB.fullmatch(entry):
        expected = "one tool, exactly, with its server in lower case; patterns stand in approval_required and denied"
        notes.wrong(path, expected, entry)
    else:
        notes.wrong(path, "a tool like server.tool, of A-Z a-z 0-9 . _ : / -", entry)
    return False


def _example(entry: str) -> str:
    return entry if re.fullmatch(r"[A-Za-z0-9_*?-]{1,40}", entry) else "tool"


def _tools(notes: Notes, value: JsonValue, accounts: dict[str, Account]) -> dict[str, ToolEntry]:
    tools = {}
    for name, entry in notes.mapping(value, ("tools",)).items():
        path: Path = ("tools", name)
        if not _EXACT.fullmatch(name):
            text = f"expected one tool, exactly, like server.tool; found {found(name)}"
            notes.note(path, text, at_key=True)
            continue
        tools[name] = _tool(notes, entry, path, accounts)
    return tools


def _tool(notes: Notes, value: JsonValue, path: Path, accounts: dict[str, Account]) -> ToolEntry:
    members = notes.fields(value, path, (), _TOOL_KEYS)
    tool_class = None
    if "class" in members:
        if members["class"] in tuple(ToolClass):
            tool_class = ToolClass(str(members["class"]))
        else:
            notes.wrong((*path, "class"), "read or mutation", members["class"])
    account = policy_rules.account(notes, members["account"], (*path, "account")) if "account" in members else None
    if isinstance(account, str) and account not in accounts:
        known = f"known here: {', '.join(accounts)}" if accounts else "there is none"
        notes.note((*path, "account"), f"expected an account of `accounts`, found {found(account)}; {known}")
    resources = policy_rules.resources(notes, members.get("resources", []), (*path, "resources"))
    if "consent" in members:
        _consent(notes, members["consent"], (*path, "consent"), tool_class, "account" in members)
    rules = policy_rules.rules(notes, members.get("rules", []), (*path, "rules"))
    reviewed = _reviewed(notes, members["reviewed"], (*path, "reviewed"), tool_class) if "reviewed" in members else None
    return ToolEntry(tool_class, account, resources, "consent" in members, rules, reviewed)


def _consent(notes: Notes, value: JsonValue, path: Path, tool_class: ToolClass | None, has_account: bool) -> None:
    """The one exemption from signatures, for a tool that changes nothing outside its own scratch space."""
    if value != "none":
        notes.wrong(path, "none, or no such key: every mutation needs consent unless this says otherwise", value)
    if tool_class is not ToolClass.MUTATION:
        notes.note(path, "expected `class: mutation` beside `consent: none`: it exempts a mutation that was looked at")
    if has_account:
        notes.note(path, "expected no `account` beside `consent: none`: what touches an account needs consent")


def _reviewed(notes: Notes, value: JsonValue, path: Path, tool_class: ToolClass | None) -> Digest | None:
    """The one definition of which the operator says that it reads, whatever its own annotations say."""
    if tool_class is not ToolClass.READ:
        notes.note(
            path, "expected `class: read` beside `reviewed`: it says that this definition is a read all the same"
        )
    if isinstance(value, str) and (found := _REVIEWED.fullmatch(value)):
        return names.digest(found[1], "reviewed")
    notes.wrong(
        path, "sha256: and 64 of 0-9 a-f, the pinned definition's digest as lever policy explain tells it", value
    )
    return None


def _accounts(notes: Notes, value: JsonValue) -> dict[str, Account]:
    accounts = {}
    for name, entry in notes.mapping(value, ("accounts",)).items():
        path: Path = ("accounts", name)
        if not _ACCOUNT.fullmatch(name):
            text = f"expected an account's name, 1 to 64 of A-Z a-z 0-9 . _ @ + -; found {found(name)}"
            notes.note(path, text, at_key=True)
            continue
        members = notes.fields(entry, path, (), ("sensitive", "lease_seconds", "lease_operations"))
        sensitive = notes.truth(members.get("sensitive", False), (*path, "sensitive"))
        if sensitive and len(members) > 1:
            notes.note(path, "expected no lease_seconds or lease_operations for a sensitive account: it has no lease")
        seconds, operations = (
            members.get("lease_seconds", LEASE_SECONDS),
            members.get("lease_operations", LEASE_OPERATIONS),
        )
        accounts[name] = Account(
            sensitive,
            notes.number(seconds, (*path, "lease_seconds"), 1, MAX_LEASE_SECONDS),
            notes.number(operations, (*path, "lease_operations"), 1, MAX_LEASE_OPERATIONS),
        )
    return accounts


def _budgets(notes: Notes, value: JsonValue) -> Budgets:
    members = notes.fields(value, ("budgets",), (), LIMITS)
    return Budgets(**{name: notes.number(limit, ("budgets", name), 0, MAX_LIMIT) for name, limit in members.items()})
