"""An operator's steps about tool calls: to answer what agents ask, to lease, to count, to take back."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.wire.names import Digest
from broker.wire.statement import Action, Approval, BoundAction, LeaseAction
from tests.proof.board import CALLING, Boards
from tests.proof.identities import newest
from tests.proof.lines import Lines
from tests.proof.persistent import Step
from tests.proof.signer import Signer
from tests.proof.told import Told
from tests.proof.tool_desk import MOST_READS, SERVER, arguments

_LEASE_S = 60


class Granting:
    """lost: what is told of a step whose answer was lost."""

    def __init__(
        self, lines: Lines, boards: Boards, chance: random.Random, signer: Signer, lost: Callable[[Step], None]
    ) -> None:
        self.lines, self.boards, self.chance, self.signer, self.lost = lines, boards, chance, signer, lost

    def answer(self) -> None:
        """Allow what waits, or say no."""
        picked = self.boards.requests.pick(self.chance)
        if not picked or not (found := self.lines.ask("request", f"/request?id={picked[0]}", request=picked[0])).done:
            return
        row = found.answer
        if row["state"] != "pending":
            return
        if self.chance.random() < (0.2 if row["regime"] == "act" else 0.03):  # no lease is asked for again so soon
            order = self.signer.envelope("request_deny", id=row["request"])
            self.lines.operator("deny", "/admin/request_deny", order, request=row["request"])
        elif row["regime"] == "lease":
            self.lease(row)
        else:
            self.approve(row)

    def approve(self, row: dict[str, Any]) -> None:
        act, word = self.signer.name("a"), json.loads(base64.b64decode(row["args"]))["word"]
        server, _, tool = row["tool"].partition(".")
        digests = (Digest(bytes.fromhex(row[name])) for name in ("args_digest", "tool_digest"))
        action = Approval(row["request"], server, tool, row["account"] or "", tuple(row["resources"]), *digests)
        self.boards.acts.put(act, row["agent"]["cn"])
        self._say("approve", act, row["agent"], action, act=act, request=row["request"], word=word)

    def lease(self, row: dict[str, Any] | None = None) -> None:
        """Reads for an agent that asked, or for one that did not."""
        identity = newest(self.lines.folder / "agents", self.chance.choice(CALLING))
        if row or identity:
            agent = row["agent"] if row else {"cn": identity.cn, "generation": identity.generation}  # type: ignore[union-attr]
            id, request = self.signer.name("l"), row["request"] if row else ""
            self.boards.leases.put(id, agent["cn"])
            action = LeaseAction("mail", _LEASE_S, MOST_READS, request)
            self._say("lease", id, agent, action, lease=id, request=request)

    def tool_call(self) -> None:
        """A call that the operator begins: who consumes it may make it."""
        if identity := newest(self.lines.folder / "agents", self.chance.choice(CALLING)):
            id = self.signer.name("c")
            agent = {"cn": identity.cn, "generation": identity.generation}
            self.boards.directives.put(id, identity.cn)
            self.boards.calls.put(id, identity.cn)
            self._say("send", id, agent, BoundAction("tool_call", SERVER, "write", arguments(id)), id=id)

    def _say(self, op: str, id: str, agent: dict[str, Any], action: Action, /, **about: str) -> None:
        pair = self.signer.statement(id, agent["cn"], agent["generation"], action)
        whole = about | {"cn": agent["cn"], "generation": str(agent["generation"])}
        self._sent(partial(self.lines.operator, op, "/directive/send", pair, **whole))

    def _sent(self, send: Callable[[], Told]) -> None:
        if send().unsure and self.chance.random() < 0.7:
            self.lost(partial(self._sent, send))

    def run(self) -> None:
        """A new run of an agent: its budget counts from the beginning."""
        cn = self.chance.choice(CALLING)
        said = self.lines.operator("run_new", "/admin/run_new", self.signer.envelope("run_new", cn=cn), cn=cn)
        if said.done:
            self.boards.runs.put(said.answer["run"], cn)

    def usage(self) -> None:
        if picked := self.boards.runs.pick(self.chance):
            tokens, cost = self.chance.randint(1, 1000), self.chance.getrandbits(40)
            body = {"run": picked[0], "gen_ai.usage.input_tokens": tokens, "cost_micro": cost}
            about = {"run": picked[0], "input_tokens": str(tokens), "cost_micro": str(cost)}
            self.lines.operator("usage", "/usage", body, **about)

    def revoke_act(self) -> None:
        if picked := self.boards.acts.pick(self.chance):
            order = self.signer.envelope("act_revoke", id=picked[0])
            self.lines.operator("act_revoke", "/admin/act_revoke", order, act=picked[0])

    def close_lease(self) -> None:
        if picked := self.boards.leases.pick(self.chance):
            order = self.signer.envelope("lease_close", id=picked[0])
            self.lines.operator("lease_close", "/admin/lease_close", order, lease=picked[0])
