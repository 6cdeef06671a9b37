"""The call of a receipt judged again, by the function that enforces, from the journal's own bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from broker.errors import Malformed
from broker.rules.authority.judge import judge
from broker.rules.authority.judgement import Call, Deny, Judgement
from broker.rules.authority.passage import resources_of
from broker.rules.authority.receipts import Accepted, Applied, Receipt
from broker.wire import accepted, frozen, policy
from broker.wire.act_records import CallClaimed
from broker.wire.catalogue import PinnedTool
from broker.wire.policy_terms import Policy
from broker.wire.records import PayloadRef

_COVERED_BY = {"automatic": ("automatic",), "lease": ("lease", "act"), "act": ("act",)}
"""By which kinds of consent a call that needs this one may be begun."""
_NEEDS = {"automatic": "no consent", "lease": "a lease", "act": "a signed act"}
_Payloads = tuple[PayloadRef, ...]


class Rejudging:
    """bytes_of: the exact bytes, None once they were dropped. What many calls rest on is read and parsed once."""

    def __init__(self, bytes_of: Callable[[PayloadRef], bytes | None]) -> None:
        self._bytes_of = bytes_of
        self._policies: dict[_Payloads, Policy | None] = {}
        self._pinned: dict[_Payloads, Mapping[str, PinnedTool] | None] = {}

    def again(self, receipt: Receipt) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """In what the claim is not as it is judged now; and what is no longer there to judge it by."""
        if receipt.flaws or receipt.accepted is None:
            return (), ()  # what it rests on is in doubt already
        try:
            return self._again(receipt, receipt.accepted)
        except Malformed as error:
            return (f"it can't be judged again: {error}",), ()

    def _again(self, receipt: Receipt, accepted: Accepted) -> tuple[tuple[str, ...], tuple[str, ...]]:
        claim = receipt.claim
        layers = [self._policy(one) for one in receipt.policies]
        tools, raw = self._tools(accepted), self._bytes(receipt.claimed.payloads)
        gone = [one.name for one, layer in zip(receipt.policies, layers, strict=True) if layer is None]
        gone += [name for name, found in ((accepted.name, tools), ("arguments", raw)) if found is None]
        tool = None if tools is None else tools.get(claim.tool)
        if tools is not None and (tool is None or tool.digest != claim.tool_digest):
            return ("its tool's definition is not the one that was accepted",), tuple(gone)
        if tool is None or raw is None or gone:
            return (), tuple(gone)
        call = Call(claim.cn, claim.tool, frozen.thaw(raw).value)
        judgement = judge(tool, [layer for layer in layers if layer], call)
        return tuple(_differences(receipt.consent[0], claim, judgement)), ()

    def _policy(self, one: Applied) -> Policy | None:
        if one.payloads not in self._policies:
            raw = self._bytes(one.payloads)
            self._policies[one.payloads] = None if raw is None else policy.parse(raw)
        return self._policies[one.payloads]

    def _tools(self, one: Accepted) -> Mapping[str, PinnedTool] | None:
        """By their names in policies."""
        if one.payloads not in self._pinned:
            raw = self._bytes(one.payloads)
            tools = None if raw is None else accepted.parse(raw)[1]
            self._pinned[one.payloads] = None if tools is None else {tool.qualified: tool for tool in tools}
        return self._pinned[one.payloads]

    def _bytes(self, payloads: _Payloads) -> bytes | None:
        if len(payloads) != 1:
            raise Malformed("journal", "a record that it rests on has not the one payload of its kind")
        return self._bytes_of(payloads[0])


def _differences(kind: str, claim: CallClaimed, judgement: Judgement) -> Iterator[str]:
    """kind: of the consent by which it was begun."""
    decision, regime = judgement.decision, judgement.regime
    if isinstance(decision, Deny) or regime is None:
        yield f"judged again, it is refused: {decision.reason}"
        return
    if kind not in _COVERED_BY[regime]:
        yield f"judged again, it needs {_NEEDS[regime]}: {decision.reason}"
    facts = {
        "class": (str(judgement.tool_class), claim.tool_class),
        "account": (judgement.account or "", claim.account),
        "list of resources": (resources_of(judgement), claim.resources),
        "list of policies": (tuple(digest.hex() for digest in judgement.policies), claim.policies),
    }
    for name, (judged, claimed) in facts.items():
        if judged != claimed:
            yield f"judged again, it has another {name}"
