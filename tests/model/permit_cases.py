"""Which calls are made under which policies: the small world in which every consent, limit and refusal has its case."""

from __future__ import annotations

from tests.model.reference import Row

CALLS = (
    ("read", {"account": "mail"}), ("read", {"account": "mail"}), ("read", {"account": "mail", "n": 1}),
    ("read", {"account": "bank"}), ("write", {"account": "mail", "path": "x"}),
    ("write", {"account": "mail", "path": "x"}), ("write", {"account": "mail", "path": "y"}),
    ("write", {"account": "bank", "path": "longer"}), ("send", {"path": "x"}), ("send", {"path": "y"}),
    ("look", {"n": 3}), ("look", {"n": 9}),
)  # fmt: skip
ODD = (
    ("look", {}), ("read", {"account": "extra"}), ("read", {"account": "nowhere"}), ("read", {}),
    ("write", {"account": "mail"}), ("write", {"account": "mail", "path": 5}), ("shred", {"path": "x"}),
    ("other", {"n": 1}),
)  # fmt: skip


def a_policy(**changes: object) -> Row:
    """The usual one, with some of it changed."""
    tiers = {"look": "allowed", "read": "allowed", "write": "allowed", "send": "approval_required", "shred": "denied"}
    mail, bank = ({"sensitive": False, "seconds": s, "operations": n} for s, n in ((90, 3), (60, 2)))
    row: Row = {"tiers": tiers, "accounts": {"mail": mail, "bank": bank}, "budgets": {}, "short": False, "few": False}
    for name, value in changes.items():
        row[name] = row[name] | value if isinstance(value, dict) else value
    return row


def _mail(**changes: object) -> Row:
    return {"mail": {"sensitive": False, "seconds": 90, "operations": 3} | changes}


POLICIES = {
    "usual": a_policy(),
    "3 calls": a_policy(budgets={"tool_calls": 3}),
    "6 calls": a_policy(budgets={"tool_calls": 6}),
    "5 minutes": a_policy(budgets={"wall_time_secs": 300}),
    "tokens": a_policy(budgets={"input_tokens": 100, "output_tokens": 200}),
    "cost": a_policy(budgets={"cost_cents": 2}),
    "0 calls": a_policy(budgets={"tool_calls": 0}),
    "no write": a_policy(tiers={"write": "denied"}),
    "all approved": a_policy(
        tiers={"write": "approval_required", "read": "approval_required", "look": "approval_required"}
    ),
    "send allowed": a_policy(tiers={"send": "allowed"}),
    "no read": a_policy(tiers={"read": "denied"}),
    "mail sensitive": a_policy(accounts=_mail(sensitive=True, operations=20)),
    "mail short": a_policy(accounts=_mail(seconds=30, operations=1)),
    "mail long": a_policy(accounts=_mail(seconds=300, operations=5)),
    "short paths": a_policy(short=True),
    "few looks": a_policy(few=True),
}
LAYERS = {name: POLICIES[name] for name in ("usual", "3 calls", "5 minutes", "mail short", "no write", "all approved")}
LAYERS["extra account"] = a_policy(accounts={"extra": {"sensitive": False, "seconds": 60, "operations": 2}})
