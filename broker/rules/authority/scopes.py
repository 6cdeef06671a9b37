"""Which policies an agent stands under: the instance's, its tenant's, its project's, its own."""

from __future__ import annotations

from broker.rules.book import Book
from broker.wire.names import Cn


def scopes_of(book: Book, cn: Cn) -> tuple[str, ...]:
    """The scopes in their order. A layer without a policy is no layer; without the instance's, nothing is allowed."""
    agent = book.agents.get(cn)
    return scopes(cn, agent.tenant, agent.project) if agent else scopes(cn)


def scopes(cn: str, tenant: str = "", project: str = "") -> tuple[str, ...]:
    """Those of an agent that was invited to these."""
    named = [f"tenant/{tenant}"] if tenant else []
    named += [f"project/{project}"] if project else []
    return ("instance", *named, f"agent/{cn}")
