"""A story that writes every kind of record, told by the rules themselves: four sessions of one broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from broker import restart
from broker.errors import Reason
from broker.journal import payloads
from broker.rules import admin, admit, consume, identity, retention
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.sweep import sweep
from broker.wire.caller import Caller
from broker.wire.names import Cn, DirectiveId, Instant
from broker.wire.records import Draft, PointerDelivered, PointerFailed, SignersChanged
from broker.wire.statement import Statement
from broker.wire.times import SECOND
from tests.journal.setting import CREATED_AT
from tests.proof import promises
from tests.proof.cast import (
    ALLOWED,
    FIRST_ALONE,
    HOUR,
    SECOND_KEY,
    TERMS,
    A,
    B,
    caller,
    digest,
    operator,
    order,
    request,
    signed_statement,
)
from tests.proof.life import Life, Promise

BEGINS_AT = Instant(CREATED_AT + SECOND)
JUMP = 80 * HOUR
LOST = 5


@dataclass(eq=False)
class Story:
    """Tells a life what happens, from a session on. Each step is a second after the one before.

    chapters: copies of it as it was before each session, to be told otherwise.
    """

    life: Life
    at: Instant = BEGINS_AT
    session: int = 0
    chapters: list[Story] = field(default_factory=list)
    statements: dict[str, Statement] = field(default_factory=dict)
    raws: dict[str, bytes] = field(default_factory=dict)
    handed_out: dict[str, tuple[Caller, str]] = field(default_factory=dict)
    first_at: dict[str, Instant] = field(default_factory=dict)
    signed: dict[str, Any] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)

    async def tell(self) -> None:
        """All of it; or up to the end of the session in which the disk refused."""
        sessions = self.sessions()
        for number in range(self.session, len(sessions)):
            self.session = number
            self.chapters.append(self.copy())
            await sessions[number]()
            if self.life.disk.struck:
                return

    def sessions(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """What there is to tell, from start to stop."""
        return self._first_session, self._the_clock_is_wrong, self._the_clock_is_accepted, self._a_copy_is_restored

    def copy(self) -> Self:
        """As it is between two sessions, with a life of its own."""
        known: dict[str, Any] = {name: copy(held) for name, held in vars(self).items() if isinstance(held, dict | set)}
        return replace(self, life=self.life.copy(), chapters=[], **known)

    # --- the sessions ---------------------------------------------------------------------------------------------

    async def _first_session(self) -> None:
        async with self.life.session(self.at):
            seen = SignersChanged(ALLOWED, ("SHA256:first", "SHA256:second"))
            await self.ask("signers", self.life.notes.write(self.at, seen), keeps=[promises.seen(ALLOWED)])
            await self._agents_enrol()
            await self._directives_live_and_end()
            self.snapshot()
            await self._many_at_once()
            await self._what_follows_a_consume()
            await self._an_identity_is_copied()
            await self._time_passes()

    async def _agents_enrol(self) -> None:
        await self.invite(A, "ticket 1")
        await self.enrol(A, "ticket 1", "key 1", generation=1)
        await self.enrol(A, "ticket 1", "key 1", generation=1)  # the lost answer
        await self.refused("a spent ticket", self._redeem(A, "ticket 1", "a thief's"), Reason.TICKET_SPENT)
        await self.invite(B, "ticket 2")
        await self.enrol(B, "ticket 2", "key 2", generation=1)
        await self.selftest()

    async def _directives_live_and_end(self) -> None:
        for id in ("plain", "keyed", "kept", "raced", "contested", "taken-back", "outlived"):
            await self.admit(id, bound=id == "keyed")
        await self.admit("short", lasts_s=90)
        await self.admit("later", opens_s=1800)
        await self.admit("second-key", signer=SECOND_KEY)
        await self.admit("of-b", cn=B)
        await self.refused("an id again", self._admission("plain"), Reason.ID_SEEN)
        await self.point("plain", delivered=False)
        await self.point("plain", delivered=True)
        await self.consume("plain")
        for _ in range(3):  # the first is written at once, the others are counted
            await self.refused("a miss", promises.consuming("plain", caller(A, 1)), Reason.ALREADY_CONSUMED)
        await self.revoke("taken-back")
        await self.refused("taken back", promises.consuming("taken-back", caller(A, 1)), Reason.REVOKED)

    async def _many_at_once(self) -> None:
        """What is decided while an earlier decision is still being written; the head is to be kept in between."""

        async def keep_head() -> None:
            self.life.journal.keep_head()

        await self.together(
            lambda: self.consume("raced", "x"),
            lambda: self.consume("raced", "y"),
            lambda: self.consume("raced"),
            keep_head,
            lambda: self.revoke("contested"),
            lambda: self.consume("contested", "x"),
        )
        await self.together(
            lambda: self.consume("keyed", "attempt-1", owed=True),
            lambda: self.consume("keyed", "attempt-1"),
            lambda: self.consume("keyed", "attempt-2"),
        )

    async def _what_follows_a_consume(self) -> None:
        await self.consume("keyed", "attempt-1")  # again, within its minute
        await self.report("keyed", "done", "as asked")
        await self.report("keyed", "done", "as asked")
        say = partial(consume.report, caller=caller(A, 1), raw_id="keyed", outcome="failed", note="")
        await self.refused("another report", say, Reason.ALREADY_REPORTED)
        await self.revoke("keyed")  # the repetition of what was consumed
        await self.refused("no more", promises.consuming("keyed", caller(A, 1), "attempt-1"), Reason.ALREADY_CONSUMED)
        envelope = order("list", self.at, "a list")
        spend = partial(admin.take, order=envelope)
        await self.take("list", spend, keeps=[promises.spent(envelope)])
        await self.refused("an envelope again", spend, Reason.ENVELOPE_REPLAYED)

    async def _an_identity_is_copied(self) -> None:
        first = caller(A, 1)
        await self.renew(first, "key 1b")
        await self.renew(first, "key 1b")  # the lost answer
        ask, issue = request(A, "a thief's")
        fork = partial(identity.renew, caller=first, ask=ask, issue=issue)
        barred = [promises.barred(first)]
        over = {f"renew {A}", f"report {A}", *(f"repeat {id}" for id in self.statements)}
        await self.refused("a fork", fork, Reason.CERTIFICATE_FORKED, keeps=barred, ends=over)
        await self.refused("frozen", promises.consuming("kept", first), Reason.AGENT_FROZEN)
        await self.invite(A, "ticket 3")
        await self.enrol(A, "ticket 3", "key 3", generation=2)
        await self.refused("of the old one", promises.consuming("kept", caller(A, 2)), Reason.GENERATION_STALE)
        await self.order("agent_pause", B)
        await self.refused("paused", promises.consuming("of-b", caller(B, 1)), Reason.AGENT_PAUSED)
        await self.order("agent_resume", B)
        await self.order("agent_revoke", B)
        await self.refused("revoked", promises.consuming("of-b", caller(B, 1)), Reason.AGENT_REVOKED)

    async def _time_passes(self) -> None:
        await self.admit("second-key-2", generation=2, signer=SECOND_KEY)
        await self.admit("short-2", generation=2, lasts_s=90)
        await self.admit("kept-2", generation=2)
        uphold = partial(consume.uphold, standing=FIRST_ALONE)
        gone = promises.ended(self.statements["second-key-2"], "invalidated")
        await self.take("uphold", uphold, keeps=gone, ends={"active second-key-2"})
        seen = SignersChanged(FIRST_ALONE.allowed_digest, ("SHA256:first",))
        keeps = [promises.seen(FIRST_ALONE.allowed_digest)]
        await self.ask("signers", self.life.notes.write(self.at, seen), keeps=keeps, ends={"signers"})
        self.at = Instant(self.at + 120 * SECOND)
        await self.take(
            "sweep", sweep, keeps=promises.ended(self.statements["short-2"], "expired"), ends={"active short-2"}
        )
        await self.ask("counts", self.life.turn.tidy(self.at))

    async def _the_clock_is_wrong(self) -> None:
        """Far ahead, with what was used long forgotten by that clock."""
        before, self.at = self.at, Instant(self.at + JUMP)
        self.forgotten = {f"active {id}" for id in self.statements} | {f"report {cn}" for cn in (A, B)}
        self.forgotten |= {f"renew {A}", *(f"ticket {digest(f'ticket {n}').hex()}" for n in range(9))}
        async with self.life.session(self.at, ends=self.forgotten):
            await self.take("sweep", sweep)
            self.snapshot()
            await self.admit("by-the-wrong-clock", generation=2)
            await self.invite(B, "ticket 4")
            await self.refused("behind", promises.consuming("kept-2", caller(A, 2)), Reason.CLOCK_BEHIND, at=before)
        self.at = Instant(before + 10 * SECOND)

    async def _the_clock_is_accepted(self) -> None:
        void = self.forgotten | {"active by-the-wrong-clock"}
        async with self.life.session(self.at, accept_clock=True, ends=void):
            for id in ("plain", "keyed", "raced"):
                await self.refused(f"{id} again", self._admission(id), (Reason.ID_SEEN, Reason.GENERATION_STALE))
            await self.refused("void", self._redeem(B, "ticket 4", "key 4"), Reason.TICKET_UNKNOWN)
            await self.admit("anew", generation=2)
            await self.consume("anew", "attempt-9", generation=2, owed=True)
            await self.report("anew", "failed", "", generation=2)
            self.snapshot()

    async def _a_copy_is_restored(self) -> None:
        void = self.forgotten | {f"{what} {id}" for id in self.statements for what in _HELD}
        async with self.life.session(self.at, restored=LOST, ends=void):
            await self.refused("barred", promises.consuming("anew", caller(A, 2)), Reason.AGENT_REVOKED)
            self.at = Instant(self.at + 200 * SECOND)  # what was signed before counts no more
            generation = 2 + LOST + 1
            await self.invite(A, "ticket 5")
            await self.enrol(A, "ticket 5", "key 5", generation=generation)
            await self.admit("after-all", generation=generation)
            await self.consume("after-all", generation=generation)
            self.at = Instant(self.at + 60 * 24 * HOUR)
            await self.drop_payloads()
            self.snapshot()

    # --- the steps ------------------------------------------------------------------------------------------------

    async def ask(self, name: str, call: Coroutine[Any, Any, Any], keeps: Iterable[Promise] = (), **more: Any) -> Any:
        """One step of the story that is no decision of a rule alone."""
        self.at = Instant(self.at + SECOND)
        return await self.life.ask(name, call, keeps=lambda answer: keeps, **more)

    async def take(
        self, name: str, decide: promises.Decide, keeps: Iterable[Promise] = (), ends: Iterable[str] = ()
    ) -> Any:
        return await self.ask(name, self.life.turn.take(decide, self.at), keeps, ends=ends)

    async def refused(
        self,
        name: str,
        decide: promises.Decide,
        reason: Reason | tuple[Reason, ...],
        *,
        at: Instant | None = None,
        keeps: Iterable[Promise] = (),
        ends: Iterable[str] = (),
    ) -> None:
        got = await self.ask(name, self.life.turn.take(decide, at or self.at), keeps, ends=ends)
        expected = reason if isinstance(reason, tuple) else (reason,)
        assert got is None or got in expected, f"{name}: {got}"

    async def together(self, *others: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """They come while something else is being written; and all is told and written when this returns."""
        with self.life.disk.attending():
            reached = self.life.disk.next_call()
            first = asyncio.create_task(self.point("kept", delivered=True))
            await asyncio.wait({reached, first}, return_when=asyncio.FIRST_COMPLETED)
            async with asyncio.TaskGroup() as group:
                for other in others:
                    group.create_task(other())
            await first
            await self.point("kept", delivered=True)

    def snapshot(self) -> None:
        """As the process beside the daemon makes one: the journal needs none, and does not wait for it."""
        if self.life.disk.struck:
            return
        with self.life.disk.beside():
            restart.take_snapshot(self.life.folder.path, self.life.disk)

    async def drop_payloads(self) -> None:
        through = await self.take("retention", partial(retention.drop, keep_s=3600))
        if through:
            keep = frozenset(self.life.turn.book.ledger.pinned())
            with self.life.disk.beside():
                payloads.drop(self.life.disk, self.life.folder.path, through, keep)

    async def selftest(self) -> None:
        verified, statement = signed_statement("selftest-1", self.at, cn=Cn("selftest"))
        decide = partial(
            admit.selftest, request=operator("selftest"), verified=verified, statement=statement, terms=TERMS
        )
        await self.take("selftest", decide)

    async def invite(self, cn: Cn, ticket: str) -> None:
        envelope, key = order("agent_invite", self.at, ticket), digest(ticket)
        decide = partial(admin.invite, order=envelope, cn=cn, ticket_digest=key, expires_s=3600)
        await self.take(ticket, decide, keeps=[promises.spent(envelope), promises.invited(cn, key)])

    def _redeem(self, cn: Cn, ticket: str, key: str) -> promises.Decide:
        ask, issue = request(cn, key)
        return partial(identity.enrol, ticket_digest=digest(ticket), ask=ask, issue=issue)

    async def enrol(self, cn: Cn, ticket: str, key: str, *, generation: int) -> None:
        at = self.at
        over = {f"ticket {digest(ticket).hex()}", f"barred {cn}", f"renew {cn}", f"report {cn}"}
        over |= {f"{what} {id}" for id, value in self.statements.items() if value.target.cn == cn for what in _HELD}

        def keeps(pem: Any) -> Iterable[Promise]:
            return promises.enrolled(cn, generation, digest(ticket), key, pem, self.first_at.setdefault(ticket, at))

        self.at = Instant(self.at + SECOND)
        call = self.life.turn.take(self._redeem(cn, ticket, key), at)
        await self.life.ask(f"enrol {cn}", call, keeps=keeps, ends=over)

    async def renew(self, who: Caller, key: str) -> None:
        ask, issue = request(who.cn, key)
        self.at = Instant(self.at + SECOND)
        call = self.life.turn.take(partial(identity.renew, caller=who, ask=ask, issue=issue), self.at)
        await self.life.ask("renew", call, keeps=lambda pem: [promises.renewed(who, key, pem)])

    def _admission(self, id: str) -> promises.Decide:
        verified, statement = self.signed[id]
        return partial(admit.admit, request=operator("send", id), verified=verified, statement=statement, terms=TERMS)

    async def admit(self, id: str, **how: Any) -> None:
        verified, statement = self.signed[id] = signed_statement(id, self.at, **how)
        self.statements[id], self.raws[id] = statement, verified.raw
        decide = self._admission(id)
        keeps = [promises.known(statement), promises.active(id), promises.refused(decide)]
        await self.take(f"admit {id}", decide, keeps=keeps)

    async def point(self, id: str, *, delivered: bool) -> None:
        key = DirectiveId(id)
        how = PointerDelivered(key, A, "inbox", 2) if delivered else None
        fact = how or PointerFailed(key, A, "inbox", 1, "nobody there", Instant(self.at + 2 * SECOND))

        def decide(book: Book, now: Instant) -> Decision[bool]:
            return Decision((Draft(fact),), True)

        keeps = [promises.told(key, fact.attempt, delivered)]
        await self.take(f"tell {id}", decide, keeps=keeps, ends={f"pointer {id}"})

    async def consume(self, id: str, attempt: str = "", *, generation: int = 1, owed: bool = False) -> None:
        """Handed out to one attempt alone, whoever else asks. owed: nobody else does, so that a retry must get it."""
        at, who = self.at, caller(A, generation)
        decide = promises.consuming(id, who, attempt)

        def keeps(answer: Any) -> Iterable[Promise]:
            if not isinstance(answer, bytes):
                return ()
            assert answer == self.raws[id]
            assert attempt or id not in self.handed_out, f"{id} was given twice"
            assert self.handed_out.setdefault(id, (who, attempt)) == (who, attempt), f"{id} was given twice"
            return promises.given(self.statements[id], answer, who, attempt, self.first_at.setdefault(id, at))

        owes = [promises.answers(decide, self.raws[id], f"repeat {id}")] if owed else []
        self.at = Instant(self.at + SECOND)
        call = self.life.turn.take(decide, at)
        await self.life.ask(f"consume {id} {attempt}", call, keeps=keeps, owes=owes, ends={f"active {id}"})

    async def report(self, id: str, outcome: str, note: str, *, generation: int = 1) -> None:
        who = caller(A, generation)
        say = partial(consume.report, caller=who, raw_id=id, outcome=outcome, note=note)
        await self.take(f"report {id}", say, keeps=promises.reported(id, who, outcome, note))

    async def order(self, op: str, subject: str) -> None:
        """A signed envelope about an agent, or that takes a directive back."""
        envelope, cn, who = order(op, self.at, subject), Cn(subject), caller(Cn(subject), 1)
        keeps = [promises.spent(envelope)]
        match op:
            case "agent_pause":
                decide: promises.Decide = partial(admin.pause, order=envelope, cn=cn)
                await self.take(op, decide, keeps=[*keeps, promises.barred(who)])
            case "agent_resume":
                decide = partial(admin.resume, order=envelope, cn=cn)
                await self.take(op, decide, keeps=[*keeps, promises.admitted_again(who)], ends={f"barred {cn}"})
            case _:
                decide = partial(admin.revoke_agent, order=envelope, cn=cn)
                ends = {f"active {id}" for id, value in self.statements.items() if value.target.cn == cn}
                await self.take(op, decide, keeps=[*keeps, promises.barred(who)], ends={*ends, f"barred {cn}"})

    async def revoke(self, id: str) -> None:
        """Take a directive back; a consumed one is given to nobody again."""
        envelope = order("revoke", self.at, id)

        def keeps(revoked: Any) -> Iterable[Promise]:
            over = promises.ended(self.statements[id], "revoked") if revoked is True else ()
            nobody = promises.consuming(id, caller(A, 1), "attempt-1")
            return [promises.spent(envelope), promises.refused(nobody), *over]

        self.at = Instant(self.at + SECOND)
        call = self.life.turn.take(partial(admin.revoke, order=envelope, id=DirectiveId(id)), self.at)
        await self.life.ask(f"revoke {id}", call, keeps=keeps, ends={f"active {id}", f"repeat {id}"})


_HELD = ("active", "repeat")
