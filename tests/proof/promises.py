"""What an answer promises, asked of the book by the rules themselves: it must hold after any restart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.rules import admin, consume, identity
from broker.rules.admin import Order
from broker.rules.book import TOMBSTONE_S, Book
from broker.rules.decision import Decision
from broker.wire.caller import Caller
from broker.wire.names import Cn, Digest, DirectiveId, Instant
from broker.wire.statement import Statement
from broker.wire.times import SECOND
from tests.proof.cast import BOTH, A, B, caller, request
from tests.proof.life import Promise

Decide = Callable[[Book, Instant], Decision[Any]]
REPEAT_S = 60
_EVERYBODY = [caller(cn, generation) for cn in (A, B) for generation in (1, 2, 3)]


def consuming(id: str, who: Caller, attempt: str = "") -> Decide:
    """A consume while every key stands."""
    return partial(consume.consume, caller=who, raw_id=id, attempt=attempt, standing=BOTH, repeat_s=REPEAT_S)


def _words(decide: Any) -> str:
    said = {name: word for name, word in decide.keywords.items() if isinstance(word, str)}
    return f"{decide.func.__name__} {said}"


def refused(decide: Decide, key: str = "") -> Promise:
    """This gives nothing any more."""

    def holds(book: Book, now: Instant) -> None:
        decision = decide(book, now)
        assert decision.refused is not None, f"given again: {_words(decide)}"

    return Promise(holds, key)


def answers(decide: Decide, answer: object, key: str = "", until: Instant | None = None) -> Promise:
    """This gives the same answer, till then."""

    def holds(book: Book, now: Instant) -> None:
        if until is None or now < until:
            assert decide(book, now).answer == answer, f"another answer: {_words(decide)}"

    return Promise(holds, key)


def known(statement: Statement) -> Promise:
    """It is listed, whatever became of it, as long as its id could be used again."""
    id = statement.directive_id

    def holds(book: Book, now: Instant) -> None:
        if now < statement.expires_at + TOMBSTONE_S * SECOND:
            assert (id in book.directives) != (id in book.tombstones), f"{id} is not listed"

    return Promise(holds)


def active(id: str) -> Promise:
    """It waits for its agent."""

    def holds(book: Book, now: Instant) -> None:
        assert id in book.directives, f"{id} is not active"

    return Promise(holds, f"active {id}")


def ended(statement: Statement, state: str) -> list[Promise]:
    """It came to this end, and nobody gets it whatever they try."""
    id = statement.directive_id

    def holds(book: Book, now: Instant) -> None:
        assert id not in book.directives, f"{id} is active again"
        if now < statement.expires_at + TOMBSTONE_S * SECOND:
            assert book.tombstones[id].state == state

    tries = [refused(consuming(id, who, attempt)) for who in _EVERYBODY for attempt in ("", "another")]
    return [Promise(holds), *tries]


def given(statement: Statement, raw: bytes, who: Caller, attempt: str, at: Instant) -> list[Promise]:
    """It was handed out once: only this attempt of this identity gets it again, and within the minute it does."""
    again = consuming(statement.directive_id, who, attempt)

    def nothing_else(book: Book, now: Instant) -> None:
        assert again(book, now).answer in (None, raw)

    once = ended(statement, "consumed")
    if not attempt:
        return [*once, refused(again)]
    until = Instant(at + REPEAT_S * SECOND)
    return [*once, Promise(nothing_else), answers(again, raw, f"repeat {statement.directive_id}", until)]


def spent(order: Order) -> Promise:
    """This envelope works no more."""
    return refused(partial(admin.take, order=order))


def invited(cn: Cn, ticket: Digest) -> Promise:
    """The ticket is open."""

    def holds(book: Book, now: Instant) -> None:
        if ticket in book.tickets:
            assert book.tickets[ticket].cn == cn
        else:
            raise AssertionError("the invitation is gone")

    return Promise(holds, f"ticket {ticket.hex()}")


def enrolled(cn: Cn, generation: int, ticket: Digest, key: str, pem: bytes, at: Instant) -> list[Promise]:
    """The generation is never lower, the ticket is used, and the key that used it gets the answer within the minute."""

    def holds(book: Book, now: Instant) -> None:
        assert book.agents[cn].generation >= generation, f"{cn} is back at {book.agents[cn].generation}"

    redeeming = [
        partial(identity.enrol, ticket_digest=ticket, ask=ask, issue=issue)
        for ask, issue in (request(cn, key), request(cn, "a thief's"))
    ]
    until = Instant(at + 60 * SECOND)
    again = answers(redeeming[0], pem, f"ticket {ticket.hex()}", until)
    return [Promise(holds), refused(redeeming[1]), again]


def renewed(who: Caller, key: str, pem: bytes) -> Promise:
    """The same certificate under the same key has the same successor."""
    ask, issue = request(who.cn, key)
    return answers(partial(identity.renew, caller=who, ask=ask, issue=issue), pem, f"renew {who.cn}")


def barred(who: Caller) -> Promise:
    """This identity gets nothing anywhere."""

    def holds(book: Book, now: Instant) -> None:
        assert identity.barred(book, who, now), f"{who.cn} is let in again"

    return Promise(holds, f"barred {who.cn}")


def admitted_again(who: Caller) -> Promise:
    """This identity is no longer barred."""

    def holds(book: Book, now: Instant) -> None:
        assert not identity.barred(book, who, now), f"{who.cn} is still barred"

    return Promise(holds, f"barred {who.cn}")


def reported(id: str, who: Caller, outcome: str, note: str) -> list[Promise]:
    """It was said once: nothing else can be said, and the same is answered the same."""
    say = partial(consume.report, caller=who, raw_id=id)
    other = refused(partial(say, outcome="declined", note="no"))
    return [other, answers(partial(say, outcome=outcome, note=note), outcome, f"report {who.cn}")]


def seen(allowed: Digest) -> Promise:
    """This content of allowed_signers is the last that was seen."""

    def holds(book: Book, now: Instant) -> None:
        assert book.allowed_digest == allowed

    return Promise(holds, "signers")


def told(id: DirectiveId, attempts: int, delivered: bool) -> Promise:
    """So often its agent was told, and whether that worked."""

    def holds(book: Book, now: Instant) -> None:
        if id in book.directives:
            pointer = book.directives[id].pointer
            assert (pointer.attempts, bool(pointer.delivered_at)) == (attempts, delivered)

    return Promise(holds, f"pointer {id}")
