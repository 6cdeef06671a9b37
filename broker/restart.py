"""From a state folder to the book: what a daemon knows when it starts."""

from __future__ import annotations

from broker.errors import BrokerError, Damaged
from broker.journal.disk import Disk
from broker.journal.inspect import walk
from broker.journal.recovery import Recovered, recover
from broker.journal.state import StateFolder
from broker.rules.book import Book, SetBack
from broker.wire.names import Instant
from broker.wire.records import ClockAccepted, Record


def read(folder: StateFolder, disk: Disk, *, accept_clock_at: Instant | None = None) -> tuple[Book, Recovered]:
    """The journal and its image. Raises Fatal.

    Where the clock was set back, or is now (accept_clock_at), it is read once more: to know what must be kept.
    """
    book, set_back = Book(folder.instance), list[SetBack]()

    def fold(record: Record) -> None:
        _fold(book, record)
        if isinstance(record.fact, ClockAccepted):
            set_back.append(SetBack(record.seq, record.at))

    recovered = recover(folder, disk, fold)
    if accept_clock_at is not None and book.newest_at > accept_clock_at:
        set_back.append(SetBack(recovered.next_seq, accept_clock_at))
    if set_back:
        book = Book(folder.instance, set_back)
        for record in walk(folder.path, disk):
            _fold(book, record)
    book.fill(recovered.read_payload)
    return book, recovered


def _fold(book: Book, record: Record) -> None:
    """A record that does not fit what came before it was not written by this program."""
    try:
        book.apply(record, None)
    except (BrokerError, KeyError) as error:
        raise Damaged(
            f"record {record.seq} does not fit the ones before it: {error!r}", hint="lever journal verify"
        ) from error
