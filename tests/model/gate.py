"""The real rules of authority, asked in the model's words: tools, policies, calls, and what the operator signs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from broker.rules import admit
from broker.rules.authority import consent, leases, orders
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.consent import Granted
from broker.rules.authority.judgement import Call, Unresolved
from broker.rules.authority.passage import Claimed, Ids, Passing, Repeated, pass_on
from broker.rules.decision import Decision, Request
from broker.wire import accepted, catalogue, policy, statement, strict_json
from broker.wire.act_records import CallClaimed
from broker.wire.catalogue import PinnedTool
from broker.wire.frozen import freeze
from broker.wire.names import NAMESPACE_DIRECTIVE, Cn, DirectiveId, Fingerprint, Generation, Instant
from broker.wire.statement import Action, Approval, BoundAction, LeaseAction, Statement, Target
from broker.wire.verified import Standing, VerifiedBytes
from tests.model.reference import Row
from tests.model.system import INSTANCE, TERMS, Decide, caller, digest
from tests.model.terms import WORLD

SERVER = "desk"
OPERATOR = Request("operator", "uid:0", "send")


@lru_cache
def defined(tool: str, version: int) -> PinnedTool:
    """One of the definitions that a tool may have."""
    kinds = {"path": {"type": "string"}, "account": {"type": "string"}, "n": {"type": "integer"}}
    schema = {"type": "object", "properties": kinds}
    return catalogue.pin(SERVER, {"name": tool, "description": f"Version {version}.", "inputSchema": schema})


def definitions(tools: dict[str, int]) -> bytes:
    """What the operator accepts."""
    return accepted.encode(SERVER, [defined(tool, version) for tool, version in tools.items()])


def policy_of(row: Row) -> policy.Policy:
    """The document that says what the row says."""
    tools: Row = {f"{SERVER}.{tool}": _table(tool, row) for tool in WORLD}
    lists: dict[str, list[str]] = {"allowed": [], "approval_required": [], "denied": []}
    for tool, tier in row["tiers"].items():
        lists[tier].append(f"{SERVER}.{tool}")
    accounts: Row = {name: _account(one) for name, one in row["accounts"].items()}
    budgets = {f"max_{name}": most for name, most in row["budgets"].items()}
    rest: Row = {"tools": tools, "accounts": accounts, "budgets": budgets}
    return policy.of({"v": 1, "name": "p", "default_action": "deny", "tool_allowlist": lists} | rest)


def _account(one: Row) -> Row:
    """A sensitive one has no lease, so nothing is said of it."""
    lease = {"lease_seconds": one["seconds"], "lease_operations": one["operations"]}
    return {"sensitive": True} if one["sensitive"] else lease


def _table(tool: str, row: Row) -> Row:
    of = WORLD[tool]
    said: Row = {"class": of["class"]}
    if of["account"]:
        said["account"] = {"pointer": "/account"}
    if of["resource"]:
        said["resources"] = [{"pointer": "/path", "kind": "id"}]
    if tool == "write" and row["short"]:
        said["rules"] = [{"pointer": "/path", "max_length": 3}]
    if tool == "look" and row["few"]:
        said["rules"] = [{"pointer": "/n", "max": 5, "otherwise": "approval"}]
    return said


def raw_of(args: Row) -> bytes:
    """The canonical bytes."""
    return strict_json.canonical(args)


# What is answered, in the model's words.


def told(decide: Decide) -> Decide:
    """The same decision, with its answer in the model's words."""

    def decided(book: Any, now: Instant) -> Decision[Any]:
        found = decide(book, now)
        return Decision(found.drafts, _word(found), found.refused, found.noted)

    return decided


def _word(found: Decision[Any]) -> Any:
    match found.answer:
        case Claimed(_, tool, arguments):
            (claim,) = (draft.fact for draft in found.drafts if isinstance(draft.fact, CallClaimed))
            assert tool.qualified == claim.tool, "what is executed is what was claimed"
            return "claimed", claim.consent, arguments
        case Repeated(claim):
            return "repeated", claim.outcome
        case ConsentRequired(request, other):
            return "asked", request.request, other
        case Granted(id):
            return id
        case answer:
            return answer


# What is asked.


def call(c: Row, good: frozenset[str], spans: tuple[dict[str, float], dict[str, float]]) -> Decide:
    seen = Unresolved.SERVER_UNAVAILABLE if c["defined"] is None else defined(c["tool"], c["defined"])
    standing = Standing(digest("file"), frozenset(map(digest, good)), frozenset())
    who, ids = caller(c["who"]), Ids(c["claim"], c["request"], c["new_run"])
    asked = Call(who.cn, f"{SERVER}.{c['tool']}", c["args"])
    return told(partial(pass_on, passing=Passing(who, asked, c["call_id"], seen, standing, ids, *spans)))


def ask_lease(who: Row, account: str, seconds: int | None, request: str, new_run: str) -> Decide:
    ids = Ids("", request, new_run)
    return told(partial(leases.ask, caller=caller(who), account=account, ids=ids, seconds=seconds))


def signed(s: Row, action: Action) -> tuple[VerifiedBytes, Statement]:
    """A statement as the operator's door has it once ssh-keygen has accepted the signature."""
    value = Statement(
        INSTANCE, DirectiveId(s["id"]), Target(Cn(s["cn"]), Generation(s["generation"])), Instant(s["issued"]),
        Instant(s["opens"]), Instant(s["expires"]), action,
    )  # fmt: skip
    raw = statement.encode(value)
    signer = digest(s["signer"])
    return VerifiedBytes(raw, b"sig", NAMESPACE_DIRECTIVE, Fingerprint("SHA256:x"), signer, digest("file")), value


def held_call(s: Row) -> BoundAction:
    """What the statement of a tool_call says."""
    tool, args = s["call"]
    return BoundAction("tool_call", SERVER, tool, args)


def send(s: Row) -> Decide:
    verified, value = signed(s, held_call(s))
    request = Request("operator", "uid:0", "send", s["id"])
    return partial(admit.admit, request=request, verified=verified, statement=value, terms=TERMS)


def approve(s: Row) -> Decide:
    seen = defined(s["tool"] or "look", s["version"] or 0).digest
    action = Approval(
        s["request"], SERVER, s["tool"], s["account"], s["resources"], freeze(s["args"]).digest, seen
    )  # fmt: skip
    return _grants(s, action)


def open_lease(s: Row) -> Decide:
    return _grants(s, LeaseAction(s["account"], s["seconds"], s["operations"], s["request"]))


def _grants(s: Row, action: Action) -> Decide:
    verified, value = signed(s, action)
    return told(partial(consent.grant, request=OPERATOR, verified=verified, statement=value, terms=TERMS))


def see_tools(seen: dict[str, int]) -> Decide:
    found = tuple(defined(tool, version) for tool, version in seen.items())
    return partial(orders.see_tools, server=SERVER, seen=found)


def spoken(rule: Callable[..., Decision[Any]]) -> Callable[..., Decision[Any]]:
    """An order's rule, with its answer in the model's words."""

    def ruled(book: Any, now: Instant, **params: Any) -> Decision[Any]:
        return told(lambda book, now: rule(book, now, **params))(book, now)

    return ruled
