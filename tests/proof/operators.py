"""An operator among the clients: directives, identities, and what agents may do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256

from tests.proof.board import AGENTS, Boards
from tests.proof.granting import Granting
from tests.proof.identities import Identity, Key, key_name, new_key, newest, publish, read_certificate, request
from tests.proof.lines import Lines
from tests.proof.persistent import Persistent, Step
from tests.proof.signer import Pair, Signer


class Operator(Persistent):
    """Sends, revokes, answers; and enrols and renews agents, whose keys it holds for convenience."""

    def __init__(self, lines: Lines, boards: Boards, chance: random.Random, signer: Signer, own: Sequence[str]) -> None:
        self.lines, self.board, self.chance, self.signer, self.own = lines, boards.directives, chance, signer, own
        self.grants = Granting(lines, boards, chance, signer, self.lost)
        self.agents = lines.folder / "agents"
        self.keys: dict[str, Key] = {}
        self.tickets: dict[str, str] = {}

    def step(self) -> None:
        if self.again:  # a lost renewal comes before anything else: to begin another would look like a stolen identity
            return self.ask_again()
        cn = self.chance.choice(self.own)
        steps: list[Step] = [self.send, self.revoke]
        steps += [partial(do, cn) for do in (self.enrol, self.renew, self.spent, self.shut_out)]
        grants = self.grants
        steps += [grants.answer, grants.tool_call, grants.lease, grants.run, grants.usage]
        steps += [grants.revoke_act, grants.close_lease]
        (step,) = self.chance.choices(steps, [24, 12, 2, 3, 2, 1, 32, 8, 7, 3, 8, 2, 2])
        step()

    def send(self) -> None:
        if identity := newest(self.agents, self.chance.choice(AGENTS)):
            id = self.signer.name("d")
            pair = self.signer.statement(id, identity.cn, identity.generation)
            self.board.put(id, identity.cn)
            self._send(id, identity, pair)

    def _send(self, id: str, target: Identity, pair: Pair) -> None:
        about = {"id": id, "cn": target.cn, "generation": str(target.generation)}
        said = self.lines.operator("send", "/directive/send", pair, **about)
        if said.unsure and self.chance.random() < 0.7:
            self.lost(partial(self._send, id, target, pair))

    def revoke(self) -> None:
        if picked := self.board.pick(self.chance):
            pair = self.signer.envelope("revoke", id=picked[0])
            self.lines.operator("revoke", "/directive/revoke", pair, id=picked[0])

    def enrol(self, cn: str) -> None:
        ticket = self.signer.name("t")
        pair = self.signer.envelope("agent_invite", cn=cn, ticket_digest=digest_of(ticket))
        said = self.lines.operator("invite", "/admin/agent_invite", pair, cn=cn, ticket_digest=digest_of(ticket))
        if said.done:
            ca = self.lines.folder / "ca.pem"
            if not ca.exists():  # the same for ever, and others read it
                ca.write_text(said.answer["broker_ca"])
            self.tickets[cn] = ticket
            self.redeem(cn, ticket, new_key())

    def redeem(self, cn: str, ticket: str, key: Key) -> None:
        body = {"ticket": ticket, "csr": request(cn, key)}
        self.lines.agent("enrol", "/enrol", body, cn=cn, ticket_digest=digest_of(ticket), key=key_name(key))
        self._certified(cn, key, partial(self.redeem, cn, ticket, key))

    def renew(self, cn: str, key: Key | None = None) -> None:
        """With a new key half of the time. What was lost is asked for with the same one: another would be a copy's."""
        key = key or (new_key() if cn not in self.keys or self.chance.random() < 0.5 else self.keys[cn])
        if identity := newest(self.agents, cn):
            about = {"cn": cn, "generation": str(identity.generation), "key": key_name(key)}
            self.lines.agent("renew", "/renew", {"csr": request(cn, key)}, identity.pem, **about)
            self._certified(cn, key, partial(self.renew, cn, key))

    def spent(self, cn: str) -> None:
        """A ticket that was redeemed, by another key."""
        if ticket := self.tickets.get(cn):
            key = new_key()
            body = {"ticket": ticket, "csr": request(cn, key)}
            self.lines.agent("enrol", "/enrol", body, cn=cn, ticket_digest=digest_of(ticket), key=key_name(key))
            self._certified(cn, key, partial(self.redeem, cn, ticket, key))

    def shut_out(self, cn: str) -> None:
        identity = newest(self.agents, cn)
        about = {"cn": cn, "generation": str(identity.generation if identity else 0)}
        self.lines.operator("agent_revoke", "/admin/agent_revoke", self.signer.envelope("agent_revoke", cn=cn), **about)
        self.enrol(cn)

    def _certified(self, cn: str, key: Key, again: Step) -> None:
        """Publish the certificate of the last answer, and note what it says in the certificate's place."""
        said = self.lines.told[-1]
        if said.done:
            generation, digest = read_certificate(said.answer["cert"])
            self.lines.told[-1] = replace(said, answer={"generation": generation, "cert_digest": digest})
            publish(self.agents, cn, key, said.answer["cert"])
            self.keys[cn] = key
        elif said.unsure:
            self.lost(again)


def digest_of(ticket: str) -> str:
    """All that the broker and the journal know of a ticket."""
    return sha256(ticket.encode()).hexdigest()
