"""What a policy says of a call, as docs/formats/policy.md tells it: the steps 4 to 8, and the consent that is needed.

A policy is a row: `tiers` by tool, `accounts` by name (`sensitive`, `seconds`, `operations`), `budgets` by dimension,
`short` and `few` for an argument rule each. A tool is in `WORLD`; a call is its tool's name and its arguments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.model.reference import Row

WORLD: dict[str, Row] = {
    "look": {"class": "read", "account": False, "resource": False},
    "read": {"class": "read", "account": True, "resource": False},
    "write": {"class": "mutation", "account": True, "resource": True},
    "send": {"class": "mutation", "account": False, "resource": True},
    "shred": {"class": "mutation", "account": False, "resource": True},
    "other": {"class": "read", "account": False, "resource": False},
}
"""`account`: the argument of that name says which; `resource`: the argument `path` is what the call touches."""
BUDGETS = ("tool_calls", "wall_time_secs", "input_tokens", "output_tokens", "cost_cents")


class Judged(NamedTuple):
    """Why a call is refused, or what it needs: `automatic`, `lease` or `act`, and what an act for it is bound to."""

    refused: frozenset[str]
    regime: str = ""
    account: str = ""
    resources: tuple[str, ...] = ()


def refused(*codes: str) -> Judged:
    return Judged(frozenset(codes))


def judge(layers: list[Row], tool: str, args: dict[str, Any]) -> Judged:
    """The judgement of a call of an accepted tool."""
    places = [layer["tiers"].get(tool) for layer in layers]
    codes = {"denied": "denied_by_rule", None: "denied_by_default"}
    if not layers or None in places or "denied" in places:
        return refused(*({codes[place] for place in places if place in codes} or {"denied_by_default"}))
    kinds = {"path": str, "account": str, "n": int}
    if any(not isinstance(value, kinds[name]) for name, value in args.items()):
        return refused("invalid_arguments")
    of, account = WORLD[tool], str(args.get("account", "")) if WORLD[tool]["account"] else ""
    if of["account"] and account not in layers[0]["accounts"]:
        return refused("unknown_account")
    if of["resource"] and "path" not in args:
        return refused("missing_resource")
    few = tool == "look" and any(layer["few"] for layer in layers)
    short = tool == "write" and any(layer["short"] for layer in layers)
    if (few and "n" not in args) or (short and len(args["path"]) > 3):
        return refused("denied_by_argument")
    asks = "approval_required" in places or of["class"] == "mutation" or (few and args["n"] > 5)
    asks |= bool(account) and terms(layers, account)["sensitive"]
    regime = "act" if asks else "lease" if account else "automatic"
    return Judged(frozenset(), regime, account, (f"id:{args['path']}",) if of["resource"] else ())


def terms(layers: list[Row], account: str) -> Row:
    """What an account's leases may be: as strict as any layer has it."""
    found = [layer["accounts"][account] for layer in layers if account in layer["accounts"]]
    return {
        "sensitive": any(one["sensitive"] for one in found),
        "seconds": min(one["seconds"] for one in found),
        "operations": min(one["operations"] for one in found),
    }


def limit(layers: list[Row], name: str) -> int | None:
    """Of budgets the lowest counts; None where no layer sets one."""
    return min((layer["budgets"][name] for layer in layers if name in layer["budgets"]), default=None)
