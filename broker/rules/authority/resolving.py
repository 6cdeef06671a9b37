"""Which tool a call is about: what was accepted under its name, or why nothing is."""

from __future__ import annotations

from broker.rules.authority.judgement import Unresolved
from broker.rules.authority.ledger import Ledger
from broker.wire.catalogue import PinnedTool


def resolved(ledger: Ledger, server: str, name: str) -> PinnedTool | Unresolved:
    """Shut for calls, for what is signed and for what waits alike, once its server was seen to define it otherwise."""
    if (tool := ledger.tool(server, name)) is None:
        return Unresolved.UNKNOWN_TOOL
    return Unresolved.TOOL_CHANGED if (server, name) in ledger.changed else tool
