"""A client that fetches directives."""

from __future__ import annotations

import random
from functools import partial

from tests.proof.board import AGENTS, Boards
from tests.proof.identities import Identity, newest
from tests.proof.lines import Lines
from tests.proof.persistent import Persistent


class Consumer(Persistent):
    """Fetches what anybody sent, under any identity that it finds, with attempt keys and without."""

    def __init__(self, lines: Lines, boards: Boards, chance: random.Random) -> None:
        self.lines, self.board, self.chance = lines, boards.directives, chance
        self.agents = lines.folder / "agents"
        self._before: dict[str, tuple[Identity, Identity]] = {}

    def step(self) -> None:
        if self.again and self.chance.random() < 0.7:
            return self.ask_again()
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
            self.lost(partial(self.consume, id, identity, attempt))
