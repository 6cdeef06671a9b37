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


def as_defined(ledger: Ledger, tool: str, defined: PinnedTool | Unresolved) -> PinnedTool | Unresolved:
    """By its name in policies. defined: as its server has it now, or why that is not known."""
    server, _, name = tool.partition(".")
    accepted = resolved(ledger, server, name)
    if isinstance(accepted, Unresolved) or isinstance(defined, Unresolved):
        return accepted if isinstance(accepted, Unresolved) else defined
    return accepted if defined.digest == accepted.digest else Unresolved.TOOL_CHANGED
