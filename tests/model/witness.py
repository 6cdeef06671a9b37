"""What was really sent upstream, as the servers would have seen it, and the promises that it must keep.

It knows nothing of the model: only what was signed, what was answered, and the clocks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.model.reference import SECOND, Row


@dataclass
class Witness:
    """signed: what each act and each lease was signed for, by id; sent: the calls that left, by claim."""

    counts: Counter[str]
    signed: dict[str, Row] = field(default_factory=dict)
    sent: dict[str, Row] = field(default_factory=dict)

    def send(self, claim: str, call: Row) -> None:
        """A call leaves for its server. call: who, tool, raw, account, consent, run, at, boot, most, mutates."""
        assert claim not in self.sent, "what was claimed is sent once"
        kind, _, id = call["consent"].partition("/")
        if kind == "act":
            self._act(id, call)
        elif kind == "lease":
            self._lease(id, call)
        else:
            assert not call["mutates"], "no mutation without a signature"
        of_run = [one for one in self.sent.values() if one["run"] == call["run"]]
        if call["most"] is not None:
            assert len(of_run) < call["most"], "a budget is not exceeded"
            self.counts["sent under a budget"] += 1
        self.sent[claim] = call

    def not_sent(self, claim: str) -> None:
        """It provably never left."""
        self.sent.pop(claim, None)

    def _act(self, id: str, call: Row) -> None:
        assert all(one["consent"] != call["consent"] for one in self.sent.values()), "once for each signature"
        act = self.signed[id]
        assert self._of(act, call) == (call["tool"], call["raw"], call["account"]), "only that exact call"
        assert act["opens"] <= call["at"] < act["expires"]
        self.counts["sent under an act"] += 1

    def _lease(self, id: str, call: Row) -> None:
        assert not call["mutates"], "a lease is for reads"
        lease, earlier = self.signed[id], [one for one in self.sent.values() if one["consent"] == call["consent"]]
        assert self._of(lease, call)[2] == call["account"]
        assert len(earlier) < lease["operations"], "no more than its operations"
        at, boot = lease.setdefault("first", (call["at"], call["boot"]))
        assert call["at"] < at + lease["seconds"] * SECOND, "no longer than its seconds, by the wall clock"
        assert call["boot"] - boot < lease["seconds"], "nor by the one that counts suspend"
        self.counts["sent under a lease"] += 1

    @staticmethod
    def _of(signed: Row, call: Row) -> tuple[Any, Any, Any]:
        who = call["who"]["cn"], call["who"]["generation"]
        assert who == (signed["cn"], signed["generation"]), "nothing of another, nor of another enrolment"
        return signed.get("tool"), signed.get("raw"), signed["account"]
