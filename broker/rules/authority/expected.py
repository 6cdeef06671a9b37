"""Expected decisions: what a case says and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.errors import Malformed
from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Call, Deny, Judgement, Unresolved
from broker.wire import catalogue
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Cn
from broker.wire.policy_terms import Policy
from broker.wire.strict_json import JsonValue


def consider(
    tools: Mapping[str, PinnedTool | str] | None, layers: Sequence[Policy], agent: Cn, tool: str, arguments: JsonValue
) -> Judgement:
    """The daemon's own judgement of a call that nobody makes. Raises Malformed for a bare name without a catalogue.

    tools: the accepted tools, or the word why one is shut; None where they are not known: then the tool is taken for
    one that takes anything.
    """
    found = tools.get(tool, Unresolved.UNKNOWN_TOOL) if tools is not None else catalogue.assumed(tool)
    return judge(found if isinstance(found, PinnedTool) else _shut(found), layers, Call(agent, tool, arguments))


def _shut(word: str) -> Unresolved:
    if word not in {*Unresolved}:
        raise Malformed("tools", f"expected one of {', '.join(Unresolved)}")
    return Unresolved(word)


def outcome(judgement: Judgement) -> str:
    """In a word: automatic, lease, act, or the code of the refusal."""
    return str(judgement.decision.code) if isinstance(judgement.decision, Deny) else judgement.regime or ""
