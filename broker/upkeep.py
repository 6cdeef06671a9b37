"""What a running broker does now and then: snapshots, payloads past their retention, the head kept elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

from broker.config import Config
from broker.effects.commands import Command, environment_of
from broker.effects.head_keeper import HeadKeeper
from broker.errors import BrokerError, Fatal, Unavailable, Untrusted
from broker.journal import payloads, snapshot
from broker.journal.disk import Disk
from broker.journal.state import StateFolder
from broker.journal.writer import JournalWriter
from broker.rules import retention
from broker.turn import Turn
from broker.wire.head import Head
from broker.wire.names import Instant

KEPT_HEAD_TIMEOUT_S = 30.0
SNAPSHOT_TIMEOUT_S = 3600.0
DAY_S = 86400
RETENTION_EVERY_S = 3600
log = logging.getLogger("lever.upkeep")


class OwnKey(Protocol):
    """The broker's own signature. `verify` raises Untrusted."""

    def sign(self, raw: bytes, /) -> bytes: ...
    def verify(self, raw: bytes, signature: bytes, /) -> None: ...


def keeper_of(config: Config, own: OwnKey) -> HeadKeeper | None:
    """Of the configuration's `kept_head`, if it has one."""
    if not (kept := config.kept_head):
        return None
    environment = environment_of(os.environ)
    keep, fetch = (
        Command(argv, KEPT_HEAD_TIMEOUT_S, folder=config.folder, environment=environment)
        for argv in (kept.keep, kept.fetch)
    )
    return HeadKeeper(config.instance, keep, fetch, own.sign, own.verify)


async def fetched(keeper: HeadKeeper) -> Head | None:
    """What was kept elsewhere. Without it nobody can say whether this folder is the newest: no start. Raises Fatal."""
    try:
        kept = await keeper.fetch()
    except (Unavailable, Untrusted) as error:
        hint = "run the command of kept_head.fetch by hand; only without `kept_head` does a broker start without it"
        raise Fatal(f"no head from kept_head.fetch: {error}", hint=hint) from error
    if kept is None:
        log.warning("kept_head.fetch wrote nothing: this start can't tell whether the state folder is the newest")
    return kept


@dataclass(slots=True)
class Upkeep:
    """Every failure is told in the log and tried again later: none of this is what an answer waits for.

    keep_s: how long payloads are kept; every_s: how often the head is given away, where there is a keeper.
    """

    folder: StateFolder
    disk: Disk
    turn: Turn
    journal: JournalWriter
    clock: Callable[[], Instant]
    keep_s: int
    keeper: HeadKeeper | None
    every_s: int
    _covered: int = field(init=False)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        found = snapshot.read(self.disk, self.folder.path, self.folder.instance)
        self._covered = found.segment if found else 1

    @classmethod
    def of(
        cls,
        config: Config,
        folder: StateFolder,
        disk: Disk,
        turn: Turn,
        journal: JournalWriter,
        clock: Callable[[], Instant],
        keeper: HeadKeeper | None,
    ) -> Self:
        """As the configuration says."""
        every_s = config.kept_head.every_s if config.kept_head else 0
        return cls(folder, disk, turn, journal, clock, config.limits.payload_days * DAY_S, keeper, every_s)

    def start(self) -> None:
        """Begin; `stop` ends it."""
        self._tasks.append(asyncio.create_task(self._again(10, self.snapshot)))
        self._tasks.append(asyncio.create_task(self._again(RETENTION_EVERY_S, self.drop_payloads)))
        if self.keeper:
            self._tasks.append(asyncio.create_task(self._again(self.every_s, self.keep_head)))

    async def stop(self) -> None:
        """End it, once the journal is closed; a snapshot that is being made is given up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.keep_head()
        except BrokerError as error:
            log.error("the last head was not kept elsewhere", extra={"why": str(error)})

    async def keep_head(self) -> None:
        """Have the newest durable record kept elsewhere. Raises Unavailable."""
        if self.keeper:
            await self.keeper.keep(self.journal.head)

    async def drop_payloads(self) -> None:
        """Remove what is past its retention. Raises BrokerError, OSError."""
        through = await self.turn.take(partial(retention.drop, keep_s=self.keep_s), self.clock())
        keep = frozenset(self.turn.book.ledger.pinned())
        await asyncio.to_thread(payloads.drop, self.disk, self.folder.path, through, keep)

    async def snapshot(self) -> None:
        """Make one once a segment is closed, in a process of its own: nobody waits for it. Raises Unavailable."""
        closed = snapshot.closed(self.disk, self.folder.path)
        if closed <= self._covered:
            return
        self._covered = closed  # tried once: the next segment brings the next try
        argv = (sys.executable, "-P", "-m", "broker.restart", str(self.folder.path))
        await Command(argv, SNAPSHOT_TIMEOUT_S, folder=self.folder.path, environment={}).run()
        log.info("a snapshot was made", extra={"segments": closed - 1})

    async def _again(self, every_s: int, work: Callable[[], object]) -> None:
        while True:
            try:
                await work()  # type: ignore[misc]
            except (BrokerError, OSError) as error:
                log.error("upkeep failed; it is tried again", extra={"what": work.__name__, "why": str(error)})
            await asyncio.sleep(every_s)
