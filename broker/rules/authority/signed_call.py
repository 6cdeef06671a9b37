"""What a signed tool_call or approval comes to, judged as the call itself will be."""

from __future__ import annotations

from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Call, Judgement, Unresolved
from broker.rules.authority.passage import resources_of
from broker.rules.authority.resolving import resolved
from broker.rules.authority.scopes import scopes_of
from broker.rules.book import Book
from broker.wire.act_records import CallFrozen
from broker.wire.catalogue import PinnedTool
from broker.wire.statement import BoundAction, Statement


def signed_call(book: Book, statement: Statement) -> Judgement | None:
    """The judgement of a call that is signed with its arguments, for a tool behind the gateway; None for all else."""
    action = statement.action
    if not isinstance(action, BoundAction):
        return None
    tool = resolved(book.ledger, action.tool, action.op)
    if tool is Unresolved.UNKNOWN_TOOL:
        return None
    layers = book.ledger.layers(scopes_of(book, statement.target.cn))
    return judge(tool, layers, Call(statement.target.cn, f"{action.tool}.{action.op}", action.args))


def freeze_call(book: Book, statement: Statement, judgement: Judgement) -> CallFrozen:
    """What the call is at this moment: the act that it may become is held to that, whatever the policy says later."""
    action = statement.action
    assert isinstance(action, BoundAction)
    tool = resolved(book.ledger, action.tool, action.op)
    assert isinstance(tool, PinnedTool)
    assert judgement.frozen
    return CallFrozen(
        statement.directive_id, judgement.account or "", resources_of(judgement), judgement.frozen.digest, tool.digest,
        tuple(digest.hex() for digest in judgement.policies),
    )  # fmt: skip
