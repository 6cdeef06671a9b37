"""A client that calls tools: reads under a lease, writes by a signed act, and calls again after lost answers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tests.proof.board import Boards
from tests.proof.identities import Identity, newest
from tests.proof.lines import Lines
from tests.proof.persistent import Persistent
from tests.proof.told import LOST, Told
from tests.proof.tool_desk import SERVER, arguments

_SETTLED = ("", "outcome_unknown")
_UNNAMED = "0123"  # a word that ends so is called without a call_id, by whomever


class Caller(Persistent):
    """own: whose tools it calls, the first of them mostly; other callers share these names and the words of calls."""

    def __init__(self, lines: Lines, boards: Boards, chance: random.Random, own: Sequence[str]) -> None:
        self.lines, self.boards, self.chance, self.own = lines, boards, chance, own
        self.ended: deque[tuple[str, str, Identity]] = deque(maxlen=20)
        self.asked: deque[tuple[str, Identity]] = deque(maxlen=6)

    def step(self) -> None:
        if self.again and self.chance.random() < 0.8:
            return self.ask_again()
        cn = self.own[0] if self.chance.random() < 0.8 else self.chance.choice(self.own)
        identity = newest(self.lines.folder / "agents", cn)
        assert identity, f"{cn} was enrolled before any client began"
        steps: list[Callable[[Identity], None]] = [
            self.write, self.retry, self.read, self.look, self.repeat, self.conflict, self.status, self.release,
        ]  # fmt: skip
        (step,) = self.chance.choices(steps, [12, 44, 20, 10, 6, 3, 4, 1])
        step(identity)

    def write(self, identity: Identity) -> None:
        """A call that needs its own act. Some come to an error of the server's."""
        word = ("fails-" if self.chance.random() < 0.1 else "w-") + self._fresh()
        self.boards.calls.put(word, identity.cn)
        self.call("write", word, identity)

    def retry(self, identity: Identity) -> None:
        """A write that somebody asked for: now it may be allowed. One that an operator began is consumed first."""
        word, cn = self.boards.calls.pick(self.chance) or ("", "")
        owner = newest(self.lines.folder / "agents", cn) if cn in self.own else None
        if not owner:
            return self.write(identity)
        if word.startswith("c-") and self.chance.random() < 0.6:
            about = {"id": word, "cn": owner.cn, "generation": str(owner.generation), "key": owner.key, "attempt": ""}
            self.lines.agent("consume", "/directive/consume", {"id": word}, owner.pem, **about)
            if self.lines.stopping:
                return None
        return self.call("write", word, owner)

    def read(self, identity: Identity) -> None:
        self.call("read", f"r-{self._fresh()}", identity)

    def look(self, identity: Identity) -> None:
        self.call("look", f"l-{self._fresh()}", identity)

    def repeat(self, identity: Identity) -> None:
        """What has its outcome, once more."""
        if self.ended:
            self.call(*self.chance.choice(self.ended))

    def conflict(self, identity: Identity) -> None:
        """Another call under the name of one that has its outcome."""
        if self.ended:
            tool, word, who = self.chance.choice(self.ended)
            self.call(tool, f"x-{self._fresh()}", who, name=call_id(word))

    def status(self, identity: Identity) -> None:
        if self.asked:
            request, who = self.chance.choice(self.asked)
            about = {"request": request, "cn": who.cn, "generation": str(who.generation)}
            self._call("status", "request_status", {"request_id": request}, "", who, about)

    def release(self, identity: Identity) -> None:
        about = {"cn": identity.cn, "generation": str(identity.generation)}
        self._call("release", "lease_release", {"account": "mail"}, "", identity, about)

    def call(self, tool: str, word: str, identity: Identity, name: str | None = None) -> None:
        """One call; its outcome is what is told of it. name: its call_id, where it is not the word's own."""
        name = call_id(word) if name is None else name
        about = {"tool": f"{SERVER}.{tool}", "word": word, "call_id": name}
        about |= {"cn": identity.cn, "generation": str(identity.generation), "key": identity.key}
        said = self._call("call", f"{SERVER}__{tool}", arguments(word), name, identity, about)
        if said.unsure and name:
            self.lost(partial(self.call, tool, word, identity, name))
        elif said.done and name == call_id(word) != "" and said.answer["code"] in _SETTLED:
            self.ended.append((tool, word, identity))
        if request := said.answer.get("request"):
            self.boards.requests.put(request, identity.cn)
            self.asked.append((request, identity))

    def _call(
        self, op: str, tool: str, values: dict[str, str], name: str, identity: Identity, about: dict[str, str]
    ) -> Told:
        body = {"name": tool, "arguments": values} | ({"call_id": name} if name else {})
        said = self.lines.agent(op, "/tools/call", body, identity.pem, **about)
        if said.done:
            answer = outcome_of(said.answer)
            status = LOST if answer["code"] == "unavailable" else said.status
            said = self.lines.told[-1] = replace(said, answer=answer, status=status)
        return said

    def _fresh(self) -> str:
        return f"{self.chance.getrandbits(64):016x}"


def outcome_of(result: dict[str, Any]) -> dict[str, Any]:
    """What a result comes to. code: why it was not carried out, or `state/...` of a request; text: the server's own."""
    values = result.get("structuredContent") or {}
    state = f"state/{values['state']}" if "state" in values else ""
    own = {"code": values.get("code", state), "request": values.get("request_id", "") if not state else ""}
    text = result["content"][0]["text"] if result["content"] and not values else ""
    return own | {"text": text, "failed": bool(result.get("isError")) and not values}


def call_id(word: str) -> str:
    """Under what name a call of this word is made; empty for none."""
    return "" if word[-1] in _UNNAMED else f"k-{word}"
