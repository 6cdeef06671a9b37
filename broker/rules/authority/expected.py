"""Expected decisions: what a case says and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Call, Deny, Judgement, Unresolved
from broker.wire import catalogue
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Cn
from broker.wire.policy_terms import Policy
from broker.wire.strict_json import JsonValue


def consider(
    tools: Mapping[str, PinnedTool] | None, layers: Sequence[Policy], agent: Cn, tool: str, arguments: JsonValue
) -> Judgement:
    """The daemon's own judgement of a call that nobody makes. Raises Malformed for a bare name without a catalogue.

    tools: the accepted tools; None where they are not known: then the tool is taken for one that takes anything.
    """
    pinned = tools.get(tool, Unresolved.UNKNOWN_TOOL) if tools is not None else catalogue.assumed(tool)
    return judge(pinned, layers, Call(agent, tool, arguments))


def outcome(judgement: Judgement) -> str:
    """In a word: automatic, lease, act, or the code of the refusal."""
    return str(judgement.decision.code) if isinstance(judgement.decision, Deny) else judgement.regime or ""
