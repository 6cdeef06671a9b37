"""A request that is settled: its agent is told the id, so that it need not ask how it stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.rules.authority.entries import Request, RequestState
from broker.rules.book import Book
from broker.rules.entries import Enrolment
from broker.rules.window import shut
from broker.wire.act_records import ActGranted, LeaseOpened, RequestDenied, RequestEnded
from broker.wire.names import Cn, DirectiveId, Generation, Instant
from broker.wire.records import Record
from broker.wire.times import SECOND

TOLD_S: Final = 600
"""For so long, and no longer, is an answer worth telling; an approval's for as long as its call may be made."""


class Due(NamedTuple):
    """A request's id to be told, from due_at on. attempts: tries so far."""

    id: DirectiveId
    cn: Cn
    due_at: Instant
    attempts: int


def by(book: Book, records: Iterable[Record]) -> Iterator[Due]:
    """The requests that these records settle."""
    for record in records:
        fact = record.fact
        if isinstance(fact, ActGranted | LeaseOpened | RequestDenied | RequestEnded):
            request = book.ledger.requests.get(fact.request)
            if request:
                yield _due(book, request)


def untold(book: Book, now: Instant) -> Iterator[Due]:
    """After a start: what is settled, and was not written down as told."""
    for request in book.ledger.requests.values():
        is_open = request.state is RequestState.PENDING
        if not is_open and not request.pointer.delivered_at and now < _span(book, request)[1]:
            yield _due(book, request)


def open_for_pointer(book: Book, id: str, now: Instant) -> bool:
    """Is this request's agent still to be told?"""
    request = book.ledger.requests.get(id)
    return request is not None and _is_news(book, request, now)


def of_agent(book: Book, cn: Cn, generation: Generation, now: Instant) -> Iterator[tuple[DirectiveId, Instant]]:
    """The settled requests that this enrolment has not taken note of, each with the time since when it may."""
    for request in book.ledger.requests_of(cn, generation):
        if _is_news(book, request, now):
            yield DirectiveId(request.request), _span(book, request)[0]


def _due(book: Book, request: Request) -> Due:
    due_at = max(_span(book, request)[0], request.pointer.next_at)
    return Due(DirectiveId(request.request), Cn(request.cn), due_at, request.pointer.attempts)


def _is_news(book: Book, request: Request, now: Instant) -> bool:
    """Not to whom has looked, or has made the call, or is not the one any more who asked."""
    agent = book.agents.get(request.cn)
    is_who_asked = agent and agent.state is Enrolment.ENROLLED and agent.generation == request.generation
    if not is_who_asked or request.state is RequestState.PENDING:
        return False
    return not (request.acted or request.request in book.looked_at or shut(*_span(book, request), now))


def _span(book: Book, request: Request) -> tuple[Instant, Instant]:
    """From when until when it is to be told: an act's own window, else a while from the answer on."""
    act = book.ledger.acts.get(request.answer)
    if act:
        return max(act.not_before_at, request.ended_at), act.expires_at
    return request.ended_at, Instant(request.ended_at + TOLD_S * SECOND)
