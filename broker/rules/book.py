"""The book: the journal's image in memory. It is a fold of records, so what it says is what is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from broker.errors import Reason
from broker.rules.authority.entries import Signed
from broker.rules.authority.ledger import Ledger
from broker.rules.entries import Agent, Directive, Enrolment, PointerState, Renewal, Repeat, Report, Ticket, Tombstone
from broker.rules.lifecycle import Event, State, after
from broker.wire import records as r
from broker.wire.act_records import ActGranted, CallFrozen
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant
from broker.wire.times import SECOND

LEEWAY_S = 120
TOMBSTONE_S = 48 * 3600
LOST_REPLY_S = 60
K = TypeVar("K")
V = TypeVar("V")
_MINUTE = 60 * SECOND
_HOUR = 60 * _MINUTE


class SetBack(NamedTuple):
    """A record ClockAccepted: its number, and the time from which the journal goes on."""

    seq: int
    at: Instant


def _drop(table: dict[K, V], over: Callable[[V], bool]) -> None:
    for key in [key for key, value in table.items() if over(value)]:
        del table[key]


def _hour_of_its_end(tombstone: Tombstone) -> int:
    return (tombstone.times[1] + TOMBSTONE_S * SECOND) // _HOUR


def _unlist(index: dict[K, dict[DirectiveId, None]], key: K, id: DirectiveId) -> None:
    del index[key][id]
    if not index[key]:
        del index[key]


class Book:
    """Agents, tickets, directives, tombstones: `apply` is the only thing that changes them."""

    def __init__(self, instance: Instance, set_back: Sequence[SetBack] = ()) -> None:
        """set_back: where in the journal to come the clock is set back, so that nothing is forgotten too early."""
        self.instance = instance
        self._set_back = set_back
        self.forgotten_minute = 0
        self.newest_at = Instant(0)
        self.records = 0
        self.allowed_digest = Digest(b"")
        self.agents: dict[Cn, Agent] = {}
        self.paused: set[Cn] = set()
        self.generation_base = Generation(0)  # beyond which a name that is new begins
        self.restored_at = r.NEVER  # nothing that was signed before counts
        self.tickets: dict[Digest, Ticket] = {}
        self.directives: dict[DirectiveId, Directive] = {}
        self.tombstones: dict[DirectiveId, Tombstone] = {}
        self.repeats: dict[DirectiveId, Repeat] = {}
        self.reports: dict[DirectiveId, Report] = {}
        self.envelopes: dict[Digest, Instant] = {}
        self.by_agent: dict[Cn, dict[DirectiveId, None]] = {}
        self.by_signer: dict[Digest, dict[DirectiveId, None]] = {}  # active or held to be repeated
        self.ledger = Ledger()
        self.payloads_until: dict[int, Instant] = {}  # by payload segment: when the last thing in it ends
        self.payloads_dropped = 0
        self.last_seen: dict[Cn, Instant] = {}  # told by the door, not by the journal: shown, never decided on
        self.looked_at: set[str] = set()  # told by the gateway: settled requests that their agents know to be so
        self._by_minute: dict[int, list[DirectiveId]] = {}  # of expiry; lists by the minute cost 8 bytes an id
        self._by_hour: dict[int, list[DirectiveId]] = {}  # of a tombstone's end
        self._words: dict[str, str] = {}

    def apply(self, record: r.Record, payloads: tuple[bytes, ...] | None) -> None:
        """Fold one record in. payloads: its exact bytes; None during recovery, where `fill` brings them afterwards."""
        self.forget(record.at, record.seq)
        self.newest_at = max(self.newest_at, record.at)
        self.records += 1
        if record.payloads:
            self._needs(record)
        match record.fact:
            case r.DirectiveAdmitted() as fact:
                self._admit(fact, record, payloads or (b"", b""))
            case CallFrozen() as fact:
                self.directives[fact.id].frozen = fact
            case r.DirectiveConsumed() as fact:
                self._consume(fact, record.at)
            case ActGranted() as fact:
                self._bound(DirectiveId(fact.act))
            case r.DirectiveReported() as fact:
                self._report(fact, record, payloads)
            case r.DirectiveRevoked() as fact:
                self._end(fact.id, Event.REVOKE, Reason.REVOKED, record.at)
            case r.RepeatRevoked() as fact:
                self._drop_repeats([fact.id])
            case r.DirectiveInvalidated() as fact:
                self._end(fact.id, Event.INVALIDATE, fact.reason, record.at)
            case r.DirectivesExpired() as fact:
                for word in fact.ids:
                    self._end(DirectiveId(word), Event.EXPIRE, Reason.EXPIRED, record.at)
            case r.AgentInvited() as fact:
                self._void_tickets(fact.cn)
                self.tickets[fact.ticket_digest] = Ticket(fact.cn, fact.expires_at, fact.tenant, fact.project)
            case r.AgentEnrolled() as fact:
                self._enrol(fact, record, payloads or (b"",))
            case r.CertificateRenewed() as fact:
                self._renew(fact, record, payloads or (b"",))
            case r.AgentFrozen() as fact:
                self._freeze_agent(fact.cn, record.at)
            case r.AgentRevoked() as fact:
                self._revoke_agent(fact.cn, record.at)
            case r.AgentPaused() as fact:
                self.paused.add(fact.cn)
            case r.AgentResumed() as fact:
                self.paused.remove(fact.cn)
            case r.EnvelopeAccepted() as fact:
                self.envelopes[fact.envelope_digest] = fact.fresh_until_at
            case r.JournalRestored() as fact:
                self._restore(fact.lost, record.at)
            case r.PayloadsDropped() as fact:
                self._drop_payloads(fact.through)
            case r.ClockAccepted():
                self._go_back(record.at)
            case r.SignersChanged() as fact:
                self.allowed_digest = fact.allowed_digest
            case r.PointerDelivered() as fact:
                self._pointed(fact, record.at)
            case r.PointerFailed() as fact:
                self._not_pointed(fact)
            case _:  # of the ledger, or of nobody
                pass
        self.ledger.apply(record, payloads)

    def _bound(self, id: DirectiveId) -> None:
        """An act was granted; of a tool_call, the one that was just consumed."""
        if tombstone := self.tombstones.get(id):
            tombstone.enforced = True

    def _freeze_agent(self, cn: Cn, at: Instant) -> None:
        self.agents[cn].state = Enrolment.FROZEN
        self.ledger.shut(cn, at)

    def _report(self, fact: r.DirectiveReported, record: r.Record, payloads: tuple[bytes, ...] | None) -> None:
        note = payloads[0].decode() if payloads else ""
        self.reports[fact.id] = Report(self._word(fact.outcome), record.at, record.payloads, note)

    def _drop_payloads(self, through: int) -> None:
        self.payloads_dropped = through
        self.payloads_until = {n: until for n, until in self.payloads_until.items() if n > through}

    def fill(self, read: Callable[[r.PayloadRef], bytes]) -> None:
        """After recovery: bring the exact bytes of all that is alive. `read` raises Fatal for missing bytes."""
        for directive in [*self.directives.values(), *(repeat.directive for repeat in self.repeats.values())]:
            directive.statement, directive.signature = (read(ref) for ref in directive.refs)
        # Where payloads were dropped by a clock that was set back since, words and lost answers are gone with them.
        for report in self.reports.values():
            report.note = read(report.refs[0]).decode() if self.kept(report.refs) else ""
        for renewal in self._renewals():
            renewal.certificate = read(renewal.refs[0]) if self.kept(renewal.refs) else b""
        self.ledger.fill(read, self.kept)

    def forget(self, now: Instant, seq: int) -> None:
        """Once a minute, drop from memory what no decision can need any more. The journal keeps all of it.

        Called with a turn's time before it decides, and with a record's before it is applied, which is the same: so no
        decision rests on what its own record forgets, and what a restart forgets is what was forgotten live.
        seq: the number of the record that is next. What a clock that is set back later makes current again is kept.
        """
        if now // _MINUTE > self.forgotten_minute:
            self.forgotten_minute = now // _MINUTE
            whole = Instant(self.forgotten_minute * _MINUTE)
            self._forget(min([whole, *(back.at for back in self._set_back if back.seq >= seq)]))

    def _forget(self, now: Instant) -> None:
        for hour in [h for h in self._by_hour if h < now // _HOUR]:
            for id in self._by_hour.pop(hour):
                if (tombstone := self.tombstones.get(id)) and _hour_of_its_end(tombstone) <= hour:
                    self._exhume(id)
        for minute in [m for m in self._by_minute if m < now // _MINUTE]:
            if not any(id in self.directives for id in self._by_minute[minute]):
                del self._by_minute[minute]
        _drop(self.envelopes, lambda until: until < now)
        self._drop_repeats([id for id, repeat in self.repeats.items() if repeat.until_at <= now])
        _drop(self.tickets, lambda ticket: max(ticket.expires_at, ticket.answer_until_at) <= now)
        self.ledger.forget(now)
        self.looked_at &= self.ledger.requests.keys()
        for agent in self.agents.values():
            _drop(agent.lineage, lambda renewal: renewal.until_at <= now)

    def due(self, now: Instant) -> tuple[DirectiveId, ...]:
        """Active directives whose window has closed."""
        minutes = sorted(minute for minute in self._by_minute if minute <= now // _MINUTE)
        ids = (id for minute in minutes for id in self._by_minute[minute])
        return tuple(id for id in dict.fromkeys(ids) if id in self.directives and self.directives[id].expires_at <= now)

    def signers(self) -> set[Digest]:
        """Whose signatures something rests on that may still be acted on."""
        return {*self.by_signer, *(signed.signer_digest for signed in self.ledger.signed())}

    def signed_by(self, signer: Digest) -> Directive | Signed:
        """Something that one of `signers` signed, with its exact bytes."""
        if signer not in self.by_signer:
            return next(signed for signed in self.ledger.signed() if signed.signer_digest == signer)
        id = next(iter(self.by_signer[signer]))
        return self.directives[id] if id in self.directives else self.repeats[id].directive

    def of_agent(self, cn: Cn) -> Iterator[Directive]:
        """The active directives of one agent, in the order of admission."""
        return (self.directives[id] for id in self.by_agent.get(cn, ()))

    def kept(self, refs: tuple[r.PayloadRef, ...]) -> bool:
        """Are these payloads still there?"""
        return all(ref.segment > self.payloads_dropped for ref in refs)

    def _needs(self, record: r.Record) -> None:
        """Until when what a record's payloads are about may matter to anybody: retention counts from there."""
        ends = [getattr(record.fact, name, record.at) for name in ("expires_at", "not_after_at", "fresh_until_at")]
        for ref in record.payloads:
            self.payloads_until[ref.segment] = max(self.payloads_until.get(ref.segment, r.NEVER), record.at, *ends)

    def _renewals(self) -> Iterator[Renewal]:
        for agent in self.agents.values():
            yield from agent.lineage.values()
        yield from (ticket.answer for ticket in self.tickets.values() if ticket.answer)

    def _word(self, word: str) -> str:
        return self._words.setdefault(word, word)

    def _admit(self, fact: r.DirectiveAdmitted, record: r.Record, payloads: tuple[bytes, ...]) -> None:
        word = self._word
        directive = Directive(
            id=fact.id,
            cn=Cn(word(fact.cn)),
            generation=fact.generation,
            kind=word(fact.kind),
            tool=word(fact.tool),
            op=word(fact.op),
            issued_at=fact.issued_at,
            not_before_at=fact.not_before_at,
            expires_at=fact.expires_at,
            admitted_at=record.at,
            fingerprint=Fingerprint(word(fact.fingerprint)),
            signer_digest=fact.signer_digest,
            allowed_digest=fact.allowed_digest,
            refs=record.payloads,
            statement=payloads[0],
            signature=payloads[1],
        )
        self._exhume(directive.id)
        self.enter(directive)

    def enter(self, directive: Directive) -> None:
        """List a directive as active."""
        self.directives[directive.id] = directive
        self.by_agent.setdefault(directive.cn, {})[directive.id] = None
        self.by_signer.setdefault(directive.signer_digest, {})[directive.id] = None
        self._by_minute.setdefault(directive.expires_at // _MINUTE, []).append(directive.id)

    def bury(self, id: DirectiveId, tombstone: Tombstone) -> None:
        """Keep a tombstone for its time."""
        self.tombstones[id] = tombstone
        self._by_hour.setdefault(_hour_of_its_end(tombstone), []).append(id)

    def _exhume(self, id: DirectiveId) -> None:
        """An id may live again: with its tombstone goes what was reported of it."""
        self.tombstones.pop(id, None)
        self.reports.pop(id, None)

    def hold(self, repeat: Repeat) -> None:
        """Keep an answer for its minute."""
        directive = repeat.directive
        self.repeats[directive.id] = repeat
        self.by_signer.setdefault(directive.signer_digest, {})[directive.id] = None

    def _end(self, id: DirectiveId, event: Event, reason: str, at: Instant) -> Directive:
        """Active -> final, by the table; a second end of the same id is a fault of the record, never a no-op."""
        directive = self.directives[id]
        state = after(State.ACTIVE, event)
        del self.directives[id]
        _unlist(self.by_agent, directive.cn, id)
        _unlist(self.by_signer, directive.signer_digest, id)
        id = directive.id  # the one string that the lists by time hold too
        self.bury(id, Tombstone.of(directive, state, self._word(reason), at))
        return directive

    def _consume(self, fact: r.DirectiveConsumed, at: Instant) -> None:
        directive = self._end(fact.id, Event.CONSUME, "", at)
        if at < fact.repeat_until_at:
            self.hold(Repeat(directive, fact.key_digest, fact.attempt, fact.repeat_until_at))

    def _drop_repeats(self, ids: Iterable[DirectiveId]) -> None:
        for id in ids:
            _unlist(self.by_signer, self.repeats.pop(id).directive.signer_digest, id)

    def _go_back(self, at: Instant) -> None:
        """The one record whose time may be before the newest: what was open by the wrong clock is not left open."""
        self.newest_at = at
        self.forgotten_minute = at // _MINUTE
        for cn in list(self.by_agent):
            self._end_all(cn, Reason.CLOCK_ACCEPTED, at)
        self._drop_repeats(list(self.repeats))
        self.tickets.clear()

    def _restore(self, lost: int, at: Instant) -> None:
        """What was used, revoked or given since the copy was made is not known: nothing from before goes on."""
        self.restored_at = Instant(at + LEEWAY_S * SECOND)  # what is signed may be dated so far ahead
        self.generation_base = Generation(self.generation_base + lost)
        for cn, agent in self.agents.items():
            self._revoke_agent(cn, at)
            agent.generation = Generation(agent.generation + lost)
            agent.lineage.clear()
        self._drop_repeats(list(self.repeats))
        self.tickets.clear()

    def _void_tickets(self, cn: Cn) -> None:
        for digest in [d for d, ticket in self.tickets.items() if ticket.cn == cn and not ticket.answer]:
            del self.tickets[digest]

    def _enrol(self, fact: r.AgentEnrolled, record: r.Record, payloads: tuple[bytes, ...]) -> None:
        self._end_all(fact.cn, Reason.GENERATION_STALE, record.at)
        self.ledger.shut(fact.cn, record.at)
        ticket = self.tickets[fact.ticket_digest]
        agent = Agent(fact.cn, fact.generation, Enrolment.ENROLLED, fact.not_after_at)
        agent.tenant, agent.project = ticket.tenant, ticket.project
        self.agents[fact.cn] = agent
        until = Instant(record.at + LOST_REPLY_S * SECOND)
        ticket.answer = Renewal(fact.csr_key_digest, until, record.payloads, payloads[0])

    def _renew(self, fact: r.CertificateRenewed, record: r.Record, payloads: tuple[bytes, ...]) -> None:
        agent = self.agents.setdefault(fact.cn, Agent(fact.cn, fact.generation, Enrolment.ENROLLED, fact.not_after_at))
        until_at = max(fact.not_after_at, agent.not_after_at)  # of both: the clock may have been set back between them
        agent.not_after_at = fact.not_after_at
        agent.renewals += 1
        agent.lineage[fact.from_cert_digest] = Renewal(fact.csr_key_digest, until_at, record.payloads, payloads[0])

    def _revoke_agent(self, cn: Cn, at: Instant) -> None:
        self._void_tickets(cn)
        self.ledger.shut(cn, at)
        self._end_all(cn, Reason.AGENT_REVOKED, at)
        if cn in self.agents:
            self.agents[cn].state = Enrolment.REVOKED

    def _end_all(self, cn: Cn, reason: Reason, at: Instant) -> None:
        for id in list(self.by_agent.get(cn, ())):
            over = self.directives[id].expires_at <= at  # and was not swept yet
            self._end(id, Event.EXPIRE, Reason.EXPIRED, at) if over else self._end(id, Event.INVALIDATE, reason, at)
        self._drop_repeats([id for id, repeat in self.repeats.items() if repeat.directive.cn == cn])

    def _pointed(self, fact: r.PointerDelivered, at: Instant) -> None:
        if told := self.directives.get(fact.id) or self.ledger.requests.get(fact.id):
            told.pointer = PointerState(fact.attempt, fact.channel, at)

    def _not_pointed(self, fact: r.PointerFailed) -> None:
        if told := self.directives.get(fact.id) or self.ledger.requests.get(fact.id):
            told.pointer = PointerState(fact.attempt, fact.channel, r.NEVER, fact.next_at, fact.why)
