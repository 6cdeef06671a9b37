"""Every state one directive can come to, with two enrolments, a second agent, the disk's pace and a crash anywhere.

Breadth first over the real Turn and Book. A state is what is durable, what is in line behind it, the clock, and who was
told what. To go on from a state, its durable records are folded (as a restart does) and the turns in line taken again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from broker.rules import admin, sweep
from broker.rules.book import Book
from broker.wire.names import Cn, DirectiveId, Instant
from broker.wire.records import (
    AgentEnrolled,
    DirectiveAdmitted,
    DirectiveConsumed,
    DirectiveRevoked,
    DirectivesExpired,
    Record,
    RequestRefused,
)
from tests.model import system
from tests.model.memory_journal import MemoryJournal, Payloads, kept
from tests.model.reference import Row
from tests.model.system import INSTANCE, Asked, Decide, Made, System, digest

SECOND, HOUR = 1_000_000, 3_600_000_000
START = 1_000 * HOUR + 7 * SECOND  # no edge of a minute: what is forgotten by the minute is not yet
ID, RAW = "d", b"the statement"
EXPIRES = START + 3 * 60 * SECOND
CLOCK = (
    START,
    START + 60 * SECOND,  # the minute of an attempt that was consumed at the start is just over
    EXPIRES,
    EXPIRES + 48 * HOUR - 1,  # still remembered
    EXPIRES + 52 * HOUR,
)
GOOD = frozenset(["s1"])
PROMISED = (
    ("send", ("ok", (ID, False))),
    ("send 2", ("ok", (ID, False))),
    ("revoke", ("ok", True)),
    ("enrol", ("ok", b"c2")),
)
"""Answers that hold from then on, whatever is lost."""


def _who(cn: str, generation: int, cert: str) -> Row:
    at = {"cn": cn, "generation": generation, "key": f"key-{cn}{generation}", "cert": cert}
    return at | {"not_after": START + 10_000 * HOUR}


FIRST, SECOND_LIFE, OTHER = _who("a", 1, "c1"), _who("a", 2, "c2"), _who("b", 1, "c3")
STATEMENT = {
    "id": ID, "cn": "a", "generation": 1, "issued": START, "opens": START, "expires": EXPIRES, "signer": "s1",
    "raw": RAW, "flaws": frozenset[str](), "bound": False,
}  # fmt: skip
ENVELOPE = {"digest": "e", "op": "revoke", "instance": INSTANCE, "issued": START}


def _certificate(who: Row) -> Made:
    return Made(who["cert"], digest(who["cert"]), who["not_after"])


def _order(op: str, n: int) -> Any:
    return system.order({"digest": f"first-{n}", "op": op, "instance": INSTANCE, "issued": START}, op)


def operations(attempts: tuple[str, ...]) -> dict[str, Decide]:
    """Everything that anybody may ask, by a name."""
    consumes = {
        f"consume {who['cn']}{who['generation']} {attempt or '-'}": system.consumes(who, ID, attempt, GOOD)
        for who in (FIRST, SECOND_LIFE, OTHER)
        for attempt in (attempts if who is not OTHER else attempts[:1])
    }
    return consumes | {
        "send": system.send(STATEMENT),
        "send 2": system.send(STATEMENT | {"generation": 2}),
        "revoke": partial(admin.revoke, order=system.order(ENVELOPE, "revoke"), id=DirectiveId(ID)),
        "enrol": system.enrols("t2", "a", SECOND_LIFE["key"], _certificate(SECOND_LIFE)),
        "sweep": sweep.sweep,
    }


class State(NamedTuple):
    """records: the whole journal; durable: how many of them are on disk; line: turns whose answer is not out.

    begun: how many records there were before the first turn in line. told: which of PROMISED
    are out; handed: who was given the action.
    """

    records: tuple[tuple[Record, Payloads], ...]
    durable: int
    begun: int
    line: tuple[tuple[str, int], ...]
    clock: int
    told: frozenset[str]
    handed: tuple[str, ...]


@dataclass
class Live:
    """A state brought to life."""

    system: System
    line: list[tuple[str, int, Asked]]


@dataclass
class Explorer:
    """`run` closes the space; each invariant counts how often it was looked at."""

    attempts: tuple[str, ...] = ("", "x")
    in_line: int = 2
    limit: int | None = None
    states: int = 0
    steps: int = 0
    checked: dict[str, int] = field(default_factory=dict)
    ends: set[str] = field(default_factory=set)

    def run(self) -> None:
        self.operations = operations(self.attempts)
        first = self.first()
        seen, waiting = {self.key(first, self.live(first))}, deque([first])
        while waiting and (self.limit is None or len(seen) < self.limit):
            for follower, live in self.after(waiting.popleft()):
                self.steps += 1
                key = self.key(follower, live)
                if key not in seen:
                    seen.add(key)
                    waiting.append(follower)
        self.states = len(seen)
        self.closed = not waiting

    def first(self) -> State:
        """Two agents are enrolled, a second ticket for the first one is out, all of it durable."""
        real = System(Instant(START))
        for n, (cn, who) in enumerate((("a", FIRST), ("b", OTHER))):
            real.ask(_invite(cn, f"t-{cn}", n))
            real.ask(system.enrols(f"t-{cn}", cn, who["key"], _certificate(who)))
        real.ask(_invite("a", "t2", 2))
        count = len(real.journal.records)
        return State(tuple(real.journal.records), count, count, (), 0, frozenset(), ())

    def live(self, state: State) -> Live:
        """The durable past is read as a restart reads it; what is in line is decided again, as it was."""
        past = list(state.records[: state.begun])
        real = System(Instant(CLOCK[state.clock]), MemoryJournal(past), _book(past))
        line = []
        for name, clock in state.line:
            real.wall = Instant(CLOCK[clock])
            line.append((name, clock, real.ask(self.operations[name])))
        real.wall = Instant(CLOCK[state.clock])
        real.journal.sync(state.durable - state.begun)
        self.check("a turn decides the same on what was read as on what was lived",
                   [r.fact for r, _ in real.journal.records] == [r.fact for r, _ in state.records])  # fmt: skip
        return Live(real, line)

    def after(self, state: State) -> Iterator[tuple[State, Live]]:
        for name in self.operations if len(state.line) < self.in_line else ():
            yield from self.asked(state, name)
        if state.clock + 1 < len(CLOCK):
            later = state._replace(clock=state.clock + 1)
            yield later, self.live(later)
        if state.durable < len(state.records):
            for count in {1, len(state.records) - state.durable}:
                yield self.landed(state, count)
        if state.line:
            yield self.crashed(state)

    def asked(self, state: State, name: str) -> Iterator[tuple[State, Live]]:
        live = self.live(state)
        asked = live.system.ask(self.operations[name])
        live.line.append((name, state.clock, asked))
        records = tuple(live.system.journal.records)
        waits = len(records) > state.durable
        self.check("no answer before what it rests on is durable", not waits or asked.released is None)
        if asked.facts:
            yield self.released(state._replace(records=records), live)
            return
        # What changes nothing leads to no other state: it is enough that its answer too waits for its turn.
        live.system.journal.sync()
        for _, _, waiting in live.line:
            waiting.poll()
        self.check("a refusal is answered once it is durable", asked.released == asked.decided)
        self.promises(state, live.system.book)
        self.steps += 1

    def landed(self, state: State, count: int) -> tuple[State, Live]:
        live = self.live(state)
        live.system.journal.sync(count)
        for _, _, asked in live.line:
            asked.poll()
        return self.released(state._replace(durable=live.system.journal.durable_count), live)

    def released(self, state: State, live: Live) -> tuple[State, Live]:
        """Take the answered from the line, in order, and look at every promise."""
        told, handed, begun = set(state.told), list(state.handed), state.begun
        while live.line and (answer := live.line[0][2].released) is not None:
            name, _, asked = live.line.pop(0)
            self.check("no answer before what it rests on is durable", asked.needed <= state.durable)
            if (name, answer) in PROMISED:
                told.add(name)
            begun = asked.needed
            if answer == ("ok", RAW):
                handed.append(name)
        self.check("answers leave in the order of their turns", not any(a.released for _, _, a in live.line))
        line = tuple((name, clock) for name, clock, _ in live.line)
        state = state._replace(line=line, begun=begun, told=frozenset(told), handed=tuple(dict.fromkeys(handed)))
        again = [name for name in handed if handed.count(name) > 1]
        self.check("handed out once, or again to the same attempt",
                   len(set(handed)) <= 1 and not any(name.endswith("-") for name in again))  # fmt: skip
        self.promises(state, live.system.book)
        return state, live

    def crashed(self, state: State) -> tuple[State, Live]:
        """What is not durable is lost, with the rest of its turn, and with it whoever waits."""
        count = kept([record for record, _ in state.records[: state.durable]])
        state = state._replace(records=state.records[:count], durable=count, begun=count, line=())
        live = self.live(state)
        self.promises(state, live.system.book)
        return state, live

    def promises(self, state: State, book: Book) -> None:
        """What was told holds, whatever was lost since."""
        tombstone = book.tombstones.get(DirectiveId(ID))
        ended = set(_ends_of(state.records))
        self.ends |= ended
        self.check("a directive ends once", len(ended) <= 1)
        self.check("a finished id is never active again", not (ended and ID in book.directives))
        gone = CLOCK[state.clock] >= EXPIRES + 48 * HOUR
        self.check("a finished id is remembered for 48 hours", not ended or tombstone is not None or gone)
        self.check(
            "an acknowledged send is not lost", not state.told & {"send", "send 2"} or bool(_targets(state.records))
        )
        self.check("an acknowledged revoke is not lost", "revoke" not in state.told or ended == {"DirectiveRevoked"})
        self.check("what was handed out is consumed", not state.handed or ended == {"DirectiveConsumed"})
        generation = book.agents[Cn("a")].generation
        self.check(
            "a generation is never taken back", generation == 2 or (generation == 1 and "enrol" not in state.told)
        )
        open_to = {directive.generation for directive in book.directives.values()}
        self.check("nothing of an older generation is open", open_to <= {generation})
        self.check(
            "only its target is handed it", {name.split()[1] for name in state.handed} <= _targets(state.records)
        )

    def check(self, promise: str, holds: Any) -> None:
        self.checked[promise] = self.checked.get(promise, 0) + 1
        assert holds, promise

    def key(self, state: State, live: Live) -> Hashable:
        """What the future depends on. Refusals and repeats leave records and change nothing."""
        line = tuple((name, clock, asked.needed - len(state.records)) for name, clock, asked in live.line)
        behind = (record.fact for record, _ in state.records[state.begun :])
        notes = [fact for fact in behind if not isinstance(fact, RequestRefused)]
        undurable = len(state.records) - state.durable
        mark = tuple(type(fact).__name__ for fact in notes), undurable
        return _image(live.system.book), line, mark, state.clock, state.told, state.handed


def _invite(cn: str, ticket: str, n: int) -> Decide:
    ordered = _order("agent_invite", n)
    return partial(admin.invite, order=ordered, cn=Cn(cn), ticket_digest=digest(ticket), expires_s=3600)


def _book(records: list[tuple[Record, Payloads]]) -> Book:
    book = Book(INSTANCE)
    for record, payloads in records:
        book.apply(record, payloads)
    return book


def _ends_of(records: tuple[tuple[Record, Payloads], ...]) -> Iterator[str]:
    """How the directive ended, as the records say: by a record of its own, or by its agent's next enrolment."""
    admitted = ended = False
    for fact in (record.fact for record, _ in records):
        match fact:
            case DirectiveAdmitted():
                admitted = True
            case DirectiveConsumed() | DirectiveRevoked() | DirectivesExpired():
                ended = True
                yield type(fact).__name__
            case AgentEnrolled(generation=2) if admitted and not ended:
                yield "invalidated"


def _targets(records: tuple[tuple[Record, Payloads], ...]) -> set[str]:
    """Whom an admitted directive was for."""
    facts = (record.fact for record, _ in records)
    return {f"{fact.cn}{fact.generation}" for fact in facts if isinstance(fact, DirectiveAdmitted)}


def _image(book: Book) -> Hashable:
    """The book, as far as this small world can fill it."""
    tombstones = tuple((id, t.state, t.reason) for id, t in book.tombstones.items())
    repeats = tuple((r.attempt, r.key_digest, r.until_at) for r in book.repeats.values())
    tickets = tuple((ticket, t.answer is not None) for ticket, t in book.tickets.items())
    agents = tuple((cn, a.generation, a.state) for cn, a in book.agents.items())
    return tuple(book.directives), tombstones, repeats, tickets, agents, tuple(book.envelopes)
