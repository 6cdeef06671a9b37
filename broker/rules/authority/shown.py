"""What an agent is shown of the tools: what was accepted, and what the policy lets it call or ask for."""

from __future__ import annotations

from broker.rules.authority.scopes import scopes_of
from broker.rules.authority.tiers import place
from broker.rules.book import Book
from broker.wire.caller import Caller
from broker.wire.policy_terms import Tier
from broker.wire.strict_json import JsonObject
from broker.wire.tool_results import name_of


def listed(book: Book, caller: Caller) -> list[JsonObject]:
    """Allowed and approval tools, in the operator's accepted words. Not consulted when a call is decided."""
    layers = book.ledger.layers(scopes_of(book, caller.cn))
    if not layers or book.ledger.stopped_at:
        return []
    tools = sorted(book.ledger.tools(), key=lambda tool: tool.qualified)
    seen = (tool for tool in tools if place(layers, tool.qualified).tier is not Tier.DENIED)
    return [tool.definition | {"name": name_of(tool.server, tool.name)} for tool in seen]
