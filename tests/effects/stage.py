"""An outbox with a real book and a fake clock, and channels that do as a test tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from broker.effects.channels import Channel
from broker.effects.outbox import Outbox, Ways
from broker.errors import BrokerError, Unavailable
from broker.rules.book import Book
from broker.rules.consume import open_for_pointer
from broker.rules.decision import Decision
from broker.rules.rates import TokenBucket
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant
from broker.wire.pointer import About
from broker.wire.records import (
    DirectiveAdmitted,
    DirectiveRevoked,
    Draft,
    Fact,
    PayloadRef,
    PointerDelivered,
    PointerFailed,
    Record,
)
from broker.wire.times import SECOND
from tests.fakes.fake_scheduler import FakeScheduler, settle

START = Instant(1_800_000_000 * SECOND)
F = TypeVar("F")


@dataclass
class ScriptedChannel:
    """fail: words for the next deliveries that shall fail; gate: closed, it keeps every delivery waiting."""

    name: str = "inbox"
    fail: list[str | Exception] = field(default_factory=list)
    told: list[tuple[Cn, DirectiveId]] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def deliver(self, cn: Cn, id: DirectiveId, about: About = About.DIRECTIVE) -> None:
        self.told.append((cn, id))
        if self.gate:
            await self.gate.wait()
        if self.fail:
            error = self.fail.pop(0)
            raise error if isinstance(error, Exception) else Unavailable(error)

    @property
    def ids(self) -> list[str]:
        return [id for _, id in self.told]


class Stage:
    """chance: what the jitter draws; 1 makes every pause its longest. take_fails: what the next turns raise."""

    def __init__(self, *, per_minute: int = 600, parallel: int = 64, chance: float = 1.0) -> None:
        self.scheduler = FakeScheduler(START)
        self.book = Book(Instance("demo"))
        self.facts: list[tuple[Instant, Fact]] = []
        self.take_fails: list[BrokerError] = []
        self.default = ScriptedChannel()
        self.channels: dict[str, Sequence[Channel]] = {}
        self.ways = Ways(
            channels=lambda cn: self.channels.get(cn, [self.default]),
            still_open=lambda id, now: open_for_pointer(self.book, id, now),
            paused=self.book.paused.__contains__,
            take=self._take,
            scheduler=self.scheduler,
            chance=lambda: chance,
        )
        self.rate, self.parallel = TokenBucket(per_minute, per_minute / 60), parallel
        self.outbox = Outbox(self.ways, self.rate, parallel)

    async def _take(self, decide: Callable[[Book, Instant], Decision[Instant]]) -> Instant:
        if self.take_fails:
            raise self.take_fails.pop(0)
        decision = decide(self.book, self.scheduler.now())
        for draft in decision.drafts:
            self.write(draft)
        await asyncio.sleep(0)
        assert decision.answer is not None
        return decision.answer

    def write(self, draft: Draft) -> Record:
        refs = tuple(PayloadRef(Digest(bytes(32)), 1, 0, len(raw)) for raw in draft.payloads)
        record = Record(len(self.facts), self.scheduler.now(), Digest(bytes(32)), refs, draft.fact)
        self.facts.append((record.at, record.fact))
        self.book.apply(record, draft.payloads)
        return record

    def admit(self, *ids: str, cn: str = "worker-a", opens_s: int = 0, lasts_s: int = 600) -> list[Record]:
        """Admit directives and let the outbox hear of them."""
        records = [self.write(Draft(self._admitted(id, cn, opens_s, lasts_s), (b"{}", b"-"))) for id in ids]
        self.outbox.hear(records)
        return records

    def revoke(self, id: str) -> None:
        self.write(Draft(DirectiveRevoked(DirectiveId(id), Fingerprint("SHA256:x"))))

    def of(self, kind: type[F]) -> list[F]:
        """The facts of a kind, in the journal's order."""
        return [fact for _, fact in self.facts if isinstance(fact, kind)]

    def pointers(self) -> list[tuple[float, str, str, int]]:
        """What the journal says of pointers: seconds since the start, id, delivered or the error, attempt."""
        return [
            ((at - START) / SECOND, f.id, f.why if isinstance(f, PointerFailed) else "delivered", f.attempt)
            for at, f in self.facts
            if isinstance(f, PointerDelivered | PointerFailed)
        ]

    def restart(self) -> None:
        """A new outbox, from what the book knows."""
        self.outbox = Outbox(self.ways, self.rate, self.parallel)
        self.outbox.resume(self.book.directives.values())

    async def asked(self, id: str, timeout_s: float = 30.0) -> bool:
        return await self.outbox.first_attempt(DirectiveId(id), timeout_s)

    async def settle(self) -> None:
        await settle()

    def _admitted(self, id: str, cn: str, opens_s: int, lasts_s: int) -> DirectiveAdmitted:
        now = self.scheduler.now()
        return DirectiveAdmitted(
            DirectiveId(id), Cn(cn), Generation(1), "instruction", "", "", Digest(bytes(32)),
            now, Instant(now + opens_s * SECOND), Instant(now + lasts_s * SECOND),
            Fingerprint("SHA256:x"), Digest(bytes(32)), Digest(bytes(32)),
        )  # fmt: skip
