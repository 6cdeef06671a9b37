"""The real rules behind the real corridor, with the clock, the disk and the caller's patience in the test's hand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.errors import Fatal, Refused
from broker.rules import admin, admit, consume, identity, listing
from broker.rules import image as of_image
from broker.rules.authority import ledger_image
from broker.rules.book import Book, SetBack
from broker.rules.decision import Decision, Request
from broker.turn import Turn
from broker.wire import record_codec
from broker.wire.caller import Caller
from broker.wire.envelope import Envelope
from broker.wire.names import (
    NAMESPACE_ADMIN,
    NAMESPACE_DIRECTIVE,
    Cn,
    Digest,
    DirectiveId,
    Fingerprint,
    Instance,
    Instant,
)
from broker.wire.names import Generation as Gen
from broker.wire.records import ClockAccepted, PayloadRef, Record
from broker.wire.statement import BoundAction, Instruction, Statement, Target
from broker.wire.verified import Standing, VerifiedBytes
from tests.model.memory_journal import MemoryJournal
from tests.model.reference import Outcome, Row

INSTANCE = Instance("demo")
CAP, REPEAT_S, EXPIRY_MAX_S = 3, 60, 24 * 3600
TERMS = admit.Terms(INSTANCE, EXPIRY_MAX_S, CAP, lambda tool, op: tool == "files")
Decide = Callable[[Book, Instant], Decision[Any]]


def digest(word: str) -> Digest:
    """Bytes of a digest's size, of a word that tells them apart."""
    return Digest(word.encode().ljust(32, b"."))


@dataclass(frozen=True, slots=True)
class Made:
    """What the CA would issue."""

    pem: str
    cert_digest: Digest
    not_after_at: Instant


@dataclass
class Asked:
    """A request on its way: decided at once, answered when its turn lets it go."""

    decided: Outcome | None = None
    facts: int = 0
    needed: int = 0
    released: Outcome | None = None
    failed: bool = False
    _turn: Coroutine[Any, Any, Any] | None = None

    def poll(self) -> None:
        """Go on as far as the disk allows."""
        if self._turn is None:
            return
        try:
            self._turn.send(None)
            return
        except StopIteration as done:
            self.released = ("ok", plain(done.value))
        except Refused as refused:
            self.released = ("no", str(refused.reason))
        except Fatal:
            self.failed = True
        self._turn = None

    def drop(self) -> None:
        """The process is gone, and the connection with it."""
        if self._turn is not None:
            self._turn.close()
        self._turn = None


def plain(answer: Any) -> Any:
    """An answer in the model's words."""
    if isinstance(answer, admit.Admitted):
        return answer.id, answer.scheduled
    if isinstance(answer, tuple):
        return tuple((one.id, one.notified_at) if isinstance(one, consume.Pointer) else one for one in answer)
    return answer


@dataclass
class System:
    """A broker without doors."""

    wall: Instant
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    book: Book = field(default_factory=lambda: Book(INSTANCE))
    turn: Turn = field(init=False)

    def __post_init__(self) -> None:
        self.turn = Turn(self.book, self.journal)

    def ask(self, decide: Decide, before: Callable[[Instant], None] = lambda now: None) -> Asked:
        """Give a request its turn. `before` is called with the turn's time, when the decision is due."""
        asked = Asked()

        def decided(book: Book, now: Instant) -> Decision[Any]:
            before(now)
            decision = decide(book, now)
            refused = decision.refused
            asked.decided = ("no", str(refused.reason)) if refused else ("ok", plain(decision.answer))
            asked.facts = len(decision.drafts)
            return decision

        asked._turn = self.turn.take(decided, self.wall)
        asked.poll()
        asked.needed = len(self.journal.records)
        return asked

    def restart(self, accept_clock: bool = False) -> None:
        """Durable turns are read again, as broker/restart.py does it, from the bytes that the records have."""
        records = self.journal.kept
        self.book = fold(records, self.wall if accept_clock else None)
        self.journal = MemoryJournal(records)
        self.turn = Turn(self.book, self.journal)

    def accept_clock(self) -> bool:
        """Start with `--accept-clock`."""
        self.restart(accept_clock=True)
        accepting = self.turn.accept_clock(self.wall)
        try:
            accepting.send(None)
            self.journal.sync()
            accepting.send(None)
        except StopIteration as done:
            return bool(done.value)
        raise AssertionError("it waits for ever")

    def rows(self, now: Instant) -> dict[str, Row]:
        found = listing.directives(self.book, now)
        assert len({row["id"] for row in found}) == len(found), "an id is listed once"
        return {row["id"]: row for row in found}

    def agent_rows(self, now: Instant) -> dict[str, Row]:
        return {row["cn"]: row for row in listing.agents(self.book, now)}


def fold(records: list[tuple[Record, tuple[bytes, ...]]], accept_clock_at: Instant | None = None) -> Book:
    """The book that these records make, through their bytes."""
    read = [record_codec.decode(record_codec.encode(record)) for record, _ in records]
    payloads = {ref.digest: raw for record, raws in records for ref, raw in zip(record.payloads, raws, strict=True)}
    back = [SetBack(record.seq, record.at) for record in read if isinstance(record.fact, ClockAccepted)]
    if accept_clock_at is not None:
        back.append(SetBack(len(read) + 1, accept_clock_at))
    book = Book(INSTANCE, back)
    for n, record in enumerate(read):
        if n == len(read) // 2 and not back:
            book = of_image.book(INSTANCE, of_image.of(book))  # what a snapshot holds is as good as the records
        book.apply(record, None)

    def bytes_of(ref: PayloadRef) -> bytes:
        return payloads[ref.digest]

    book.fill(bytes_of)
    return book


def image(book: Book) -> dict[str, Any]:
    """All that a decision or a listing may look at, comparable."""
    tombstones = {
        id: (t.cn, t.generation, t.state, t.reason, t.times, t.kind, t.tool, t.op, t.attempts, t.fingerprint)
        for id, t in book.tombstones.items()
    }
    names = (
        "agents",
        "paused",
        "generation_base",
        "restored_at",
        "tickets",
        "directives",
        "repeats",
        "reports",
        "envelopes",
        "by_agent",
        "by_signer",
    )
    return {name: getattr(book, name) for name in names} | {
        "ledger": ledger(book),
        "tombstones": tombstones,
        "newest_at": book.newest_at,
        "records": book.records,
    }


def ledger(book: Book) -> tuple[Any, ...]:
    """Its part about authority, with the exact bytes of all that is alive."""
    own = book.ledger
    signed = [(one.statement, one.signature) for one in own.signed()]
    requests = [(one.args, one.note) for one in own.requests.values()]
    policies = {scope: force.policy.raw for scope, force in own.policies.items() if force.policy}
    tools = {tool.qualified: tool.digest for tool in own.tools()}
    return ledger_image.of(own), signed, requests, policies, tools, list(own.running)


# The model's words, as what the rules take.


def caller(who: Row) -> Caller:
    return Caller(
        Cn(who["cn"]), Gen(who["generation"]), Instant(who["not_after"]), digest(who["cert"]), digest(who["key"])
    )


def send(s: Row) -> Decide:
    tool = "unheard-of" if "tool_undeclared" in s["flaws"] else "files"
    statement = Statement(
        Instance("another") if "wrong_instance" in s["flaws"] else INSTANCE,
        DirectiveId(s["id"]),
        Target(Cn(s["cn"]), Gen(s["generation"])),
        Instant(s["issued"]),
        Instant(s["opens"]),
        Instant(s["expires"]),
        BoundAction("tool_call", tool, "write_file") if s["bound"] else Instruction("Do the thing."),
    )
    signer = Digest(digest(s["signer"]))
    verified = VerifiedBytes(s["raw"], b"sig", NAMESPACE_DIRECTIVE, Fingerprint("SHA256:x"), signer, digest("file"))
    request = Request("operator", "uid:0", "send", s["id"])
    return partial(admit.admit, request=request, verified=verified, statement=statement, terms=TERMS)


def order(e: Row, op: str) -> admin.Order:
    raw = e["digest"].encode()
    signed = VerifiedBytes(raw, b"sig", NAMESPACE_ADMIN, Fingerprint("SHA256:x"), digest("s1"), digest("file"))
    envelope = Envelope(Instance(e["instance"]), e["op"], {}, Instant(e["issued"]))
    return admin.Order(op, signed, envelope, Request("operator", "uid:0", op))


def consumes(who: Row, id: str, attempt: str, good: frozenset[str]) -> Decide:
    standing = Standing(digest("file"), frozenset(map(digest, good)), frozenset())
    return partial(
        consume.consume, caller=caller(who), raw_id=id, attempt=attempt, standing=standing, repeat_s=REPEAT_S
    )


def checks(who: Row, id: str) -> Decide:
    return partial(consume.check, caller=caller(who), raw_id=id)


def reports(who: Row, id: str, outcome: str) -> Decide:
    return partial(consume.report, caller=caller(who), raw_id=id, outcome=outcome, note="")


def looks(who: Row, after: int) -> Decide:
    return partial(consume.inbox, caller=caller(who), after=Instant(after))


def upholds(bad: str) -> Decide:
    return partial(consume.uphold, standing=Standing(digest("file"), frozenset(), frozenset([digest(bad)])))


def enrols(ticket: str, cn: str, key: str, made: Made) -> Decide:
    ask = identity.Ask(cn, digest(key))
    return partial(identity.enrol, ticket_digest=digest(ticket), ask=ask, issue=lambda *_: made)


def renews(who: Row, key: str, made: Made) -> Decide:
    return partial(identity.renew, caller=caller(who), ask=identity.Ask("", digest(key)), issue=lambda *_: made)
