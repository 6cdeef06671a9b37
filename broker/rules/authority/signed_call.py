"""What a signed tool_call comes to, judged as the call itself will be."""

from __future__ import annotations

from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Call, Judgement
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.wire.statement import BoundAction, Statement


def signed_call(book: Book, statement: Statement) -> Judgement | None:
    """The judgement of a tool_call for a tool behind the gateway; None for everything else."""
    action = statement.action
    if not isinstance(action, BoundAction) or action.kind != "tool_call":
        return None
    tool = book.ledger.tool(action.tool, action.op)
    if tool is None:
        return None
    layers = book.ledger.layers(scopes_of(book, statement.target.cn))
    return judge(tool, layers, Call(statement.target.cn, tool.qualified, action.args))
