"""How a pointer reaches an agent. A channel carries the fixed sentence and an id, never anything else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from broker.effects.commands import Command
from broker.errors import Malformed, Unavailable
from broker.wire import names, pointer
from broker.wire.names import Cn, DirectiveId
from broker.wire.pointer import About

_PLACEHOLDER = re.compile(r"\{(agent|id|text)\}")


class Channel(Protocol):
    """One way to tell an agent an id."""

    @property
    def name(self) -> str:
        """What the journal calls it."""

    async def deliver(self, cn: Cn, id: DirectiveId, about: About = About.DIRECTIVE) -> None:
        """Tell the agent. Returns when that is done; raises Unavailable, with words for the log, when it is not."""


class InboxChannel:
    """The built-in channel: GET /inbox offers the id, so delivering means waking those who wait for it."""

    name = "inbox"

    def __init__(self) -> None:
        self._waiters: dict[Cn, set[asyncio.Future[None]]] = {}
        self._wakes: dict[Cn, int] = {}
        self._closed = False

    async def deliver(self, cn: Cn, id: DirectiveId, about: About = About.DIRECTIVE) -> None:
        """Wake the long polls of this agent."""
        self.wake(cn)

    def mark(self, cn: Cn) -> int:
        """A place in this agent's history: taken before looking, it lets `wait` miss nothing that came meanwhile."""
        return self._wakes.get(cn, 0)

    async def wait(self, cn: Cn, timeout_s: float, mark: int | None = None) -> None:
        """Return at the next wake of this agent (or the first since `mark`), after timeout_s, or at close."""
        if self._closed or (mark is not None and mark != self.mark(cn)):
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(cn, set()).add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=timeout_s)
        finally:
            waiter.cancel()
            if waiting := self._waiters.get(cn):
                waiting.discard(waiter)
                if not waiting:
                    del self._waiters[cn]

    def wake(self, cn: Cn) -> None:
        """Let every long poll of this agent look again: something about it has changed."""
        self._wakes[cn] = self.mark(cn) + 1
        for waiter in self._waiters.pop(cn, ()):
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """End all waiting, now and from now on: the daemon is going."""
        self._closed = True
        for cn in list(self._waiters):
            self.wake(cn)


class CommandChannel:
    """Runs the operator's command: no shell, a fixed environment, no input, a deadline, success by exit status 0.

    argv: the words, of which all but the first may hold {agent}, {id}, {text}; folder: where it runs;
    environment: the whole of it. The command runs in a session of its own, and nothing in it outlives the delivery.
    """

    name = "command"

    def __init__(self, argv: Sequence[str], timeout_s: float, *, folder: Path, environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._timeout_s = timeout_s
        self._folder = folder
        self._environment = dict(environment)

    async def deliver(self, cn: Cn, id: DirectiveId, about: About = About.DIRECTIVE) -> None:
        """Run the command once."""
        command = Command(
            self._words(cn, id, about), self._timeout_s, folder=self._folder, environment=self._environment
        )
        await command.run()

    def _words(self, cn: Cn, id: DirectiveId, about: About) -> list[str]:
        """The command's words with the placeholders filled in, one word each, whatever is filled in."""
        try:
            values = {"agent": names.cn(cn), "id": names.directive_id(id), "text": pointer.sentence(id, about)}
        except Malformed as error:
            raise Unavailable(f"not told: {error}") from error
        words = [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in self._argv]
        for written, word in zip(self._argv, words, strict=True):
            if written == "--":
                break
            if word.startswith("-") and not written.startswith("-"):
                raise Unavailable("not told: the id would be read as an option; put -- before {id} in the command")
        return words
