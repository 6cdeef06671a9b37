"""A client process that goes on through every restart of the daemon and remembers what it was told.

Its input has a line `up` for each time that the daemon serves, and ends when the work does. Its output: the public key
that it signs with, then, at the end, one line of JSON for each request. All clients of a folder share the file `board`,
with the ids that were sent, and `agents/`, with the identities: so they meet at the same directives. Each answer is a
byte in the pipe `answered`.
"""

from __future__ import annotations

import os
import random
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.proof import told
from tests.proof.identities import Identity, Key, key_name, new_key, newest, publish, read_certificate, request
from tests.proof.lines import Gone, Lines
from tests.proof.signer import Pair, Signer

AGENTS = ("ant", "bee", "cat", "dog")
_RECENT = 14
Step = Callable[[], None]


class Board:
    """The ids that somebody began to send: one line each, which is appended whole."""

    def __init__(self, path: Path) -> None:
        self._write = path.open("a", buffering=1)
        self._read = path.open()
        self._recent: deque[tuple[str, str]] = deque(maxlen=_RECENT)

    def put(self, id: str, cn: str) -> None:
        self._write.write(f"{id} {cn}\n")

    def close(self) -> None:
        self._write.close()
        self._read.close()

    def pick(self, chance: random.Random) -> tuple[str, str] | None:
        """One of the newest: an id and whose it is."""
        self._recent.extend((id, cn) for id, cn in (line.split() for line in self._read))
        return chance.choice(self._recent) if self._recent else None


class Operator:
    """Sends, revokes, invites; and enrols and renews agents, whose keys it holds for convenience."""

    def __init__(self, lines: Lines, board: Board, chance: random.Random, signer: Signer, own: Sequence[str]) -> None:
        self.lines, self.board, self.chance, self.signer, self.own = lines, board, chance, signer, own
        self.agents = lines.folder / "agents"
        self.keys: dict[str, Key] = {}
        self.tickets: dict[str, str] = {}
        self.again: Step | None = None  # what was lost, to be asked once more

    def step(self) -> None:
        if self.again:
            return self.repeat(self.again)
        cn = self.chance.choice(self.own)
        steps: list[Step] = [self.send, self.revoke]
        steps += [partial(do, cn) for do in (self.enrol, self.renew, self.spent, self.shut_out)]
        (step,) = self.chance.choices(steps, [60, 28, 3, 4, 4, 1])
        step()

    def repeat(self, step: Step) -> None:
        """A lost renewal comes before anything else: to begin another would look like a stolen identity."""
        self.again = None
        try:
            step()
        except Gone:
            self.again = step
            raise

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
            self.again = partial(self._send, id, target, pair)

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
            self.again = again


class Consumer:
    """Fetches what anybody sent, under any identity that it finds, with attempt keys and without."""

    def __init__(self, lines: Lines, board: Board, chance: random.Random) -> None:
        self.lines, self.board, self.chance = lines, board, chance
        self.agents = lines.folder / "agents"
        self.again: tuple[str, Identity, str] | None = None
        self._before: dict[str, tuple[Identity, Identity]] = {}

    def step(self) -> None:
        if self.again and self.chance.random() < 0.7:
            again, self.again = self.again, None
            return self.consume(*again)
        id, cn = self.board.pick(self.chance) or ("nothing", AGENTS[0])
        if self.chance.random() < 0.08:
            cn = self.chance.choice(AGENTS)
        identity = self._identity(cn)
        if self.chance.random() < 0.2:
            return self.consume(id, identity, "", op="check")
        own = f"{self.lines.who}-{self.chance.getrandbits(32):x}"
        self.consume(id, identity, self.chance.choice(["", "shared", own]))

    def _identity(self, cn: str) -> Identity:
        """The newest; or now and then the one before it, as a copy that was taken would be used."""
        found = newest(self.agents, cn)
        assert found, f"{cn} was enrolled before any client began"
        older, newer = self._before.get(cn, (found, found))
        if newer != found:
            older, newer = newer, found
        self._before[cn] = older, newer
        return older if self.chance.random() < 0.1 else newer

    def consume(self, id: str, identity: Identity, attempt: str, op: str = "consume") -> None:
        body = {"id": id} | ({"attempt": attempt} if attempt else {})
        about = {"id": id, "cn": identity.cn, "generation": str(identity.generation), "key": identity.key}
        said = self.lines.agent(op, f"/directive/{op}", body, identity.pem, attempt=attempt, **about)
        if said.unsure and attempt:
            self.again = (id, identity, attempt)


def digest_of(ticket: str) -> str:
    """All that the broker and the journal know of a ticket."""
    return sha256(ticket.encode()).hexdigest()


def main(words: list[str]) -> int:
    """role, name, seed, folder, port, instance, agents of its own."""
    role, who, seed, folder, port, instance, *own = words
    chance = random.Random(f"{seed} {who}")
    lines, board = Lines(who, Path(folder), int(port)), Board(Path(folder) / "board")
    signer = Signer(instance, chance)
    print(signer.key.public_line, flush=True)
    client: Operator | Consumer = Operator(lines, board, chance, signer, own)
    if role == "consumer":
        client = Consumer(lines, board, chance)
    answered = os.open(Path(folder) / "answered", os.O_WRONLY | os.O_NONBLOCK)
    for _ in sys.stdin:
        with suppress(Gone):
            while not lines.stopping:
                client.step()
                with suppress(BlockingIOError):
                    os.write(answered, b".")
    for said in lines.told:
        print(told.line(said))
    return 0
