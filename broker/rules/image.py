"""A book as plain values, and back: what a snapshot holds. The exact bytes stay in the payloads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.rules.authority import ledger_image
from broker.rules.authority.ledger_image import LedgerImage
from broker.rules.book import Book
from broker.rules.entries import Agent, Directive, Renewal, Repeat, Report, Ticket, Tombstone, TombstoneRow
from broker.wire.names import Cn, Digest, DirectiveId, Generation, Instance, Instant


@dataclass(frozen=True, slots=True)
class Image:
    """All that a book decides on, in the order in which it came to be."""

    records: int
    newest_at: Instant
    forgotten_minute: int
    allowed_digest: Digest
    agents: tuple[Agent, ...]
    paused: tuple[Cn, ...]
    generation_base: Generation
    restored_at: Instant
    tickets: dict[Digest, Ticket]
    directives: tuple[Directive, ...]
    tombstones: dict[DirectiveId, TombstoneRow]
    repeats: tuple[Repeat, ...]
    reports: dict[DirectiveId, Report]
    envelopes: dict[Digest, Instant]
    payloads_until: dict[int, Instant]
    payloads_dropped: int
    ledger: LedgerImage


def of(book: Book) -> Image:
    """The image of a book as it is now, without the bytes that `Book.fill` reads."""
    return Image(
        records=book.records,
        newest_at=book.newest_at,
        forgotten_minute=book.forgotten_minute,
        allowed_digest=book.allowed_digest,
        agents=tuple(_agent(agent) for agent in book.agents.values()),
        paused=tuple(sorted(book.paused)),
        generation_base=book.generation_base,
        restored_at=book.restored_at,
        tickets={digest: _ticket(ticket) for digest, ticket in book.tickets.items()},
        directives=tuple(_directive(directive) for directive in book.directives.values()),
        tombstones={id: tombstone.row for id, tombstone in book.tombstones.items()},
        repeats=tuple(replace(repeat, directive=_directive(repeat.directive)) for repeat in book.repeats.values()),
        reports={id: replace(report, note="") for id, report in book.reports.items()},
        envelopes=dict(book.envelopes),
        payloads_until=dict(book.payloads_until),
        payloads_dropped=book.payloads_dropped,
        ledger=ledger_image.of(book.ledger),
    )


def book(instance: Instance, image: Image) -> Book:
    """The book that an image is of; `Book.fill` brings the bytes."""
    made = Book(instance)
    made.records, made.newest_at, made.forgotten_minute = image.records, image.newest_at, image.forgotten_minute
    made.allowed_digest = image.allowed_digest
    made.agents = {agent.cn: agent for agent in image.agents}
    made.paused = set(image.paused)
    made.generation_base, made.restored_at = image.generation_base, image.restored_at
    made.ledger = ledger_image.ledger(image.ledger)
    made.tickets = dict(image.tickets)
    made.reports = dict(image.reports)
    made.envelopes = dict(image.envelopes)
    made.payloads_until, made.payloads_dropped = dict(image.payloads_until), image.payloads_dropped
    for directive in image.directives:
        made.enter(directive)
    for id, row in image.tombstones.items():
        made.bury(id, Tombstone(row))
    for repeat in image.repeats:
        made.hold(repeat)
    return made


def _directive(directive: Directive) -> Directive:
    return replace(directive, statement=b"", signature=b"", pointer=replace(directive.pointer))


def _renewal(renewal: Renewal) -> Renewal:
    return replace(renewal, certificate=b"")


def _agent(agent: Agent) -> Agent:
    return replace(agent, lineage={digest: _renewal(renewal) for digest, renewal in agent.lineage.items()})


def _ticket(ticket: Ticket) -> Ticket:
    return replace(ticket, answer=_renewal(ticket.answer) if ticket.answer else None)
