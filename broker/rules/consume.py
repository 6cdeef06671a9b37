"""The compare-and-swap, and what else an agent may do with its own: check, report, inbox.

Each miss makes the same look-ups and the same note whatever its cause, so that no cause can be told from another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from broker.errors import Reason
from broker.rules import identity
from broker.rules.authority import consent, settled
from broker.rules.book import Book
from broker.rules.decision import Decision, Request
from broker.rules.entries import Directive, Repeat, Tombstone
from broker.rules.lifecycle import ENDED, State
from broker.rules.window import shut
from broker.wire import names
from broker.wire.act_records import ActGranted
from broker.wire.caller import Caller
from broker.wire.names import Cn, DirectiveId, Generation, Instant
from broker.wire.pointer import About
from broker.wire.records import ConsumeRepeated, DirectiveConsumed, DirectiveInvalidated, DirectiveReported, Draft
from broker.wire.times import SECOND
from broker.wire.verified import Standing


@dataclass(frozen=True, slots=True)
class Pointer:
    """An id that waits for its agent. notified_at: when it came to wait."""

    id: DirectiveId
    notified_at: Instant
    about: About = About.DIRECTIVE


class _Nobodys(NamedTuple):
    """What is looked at in place of a directive that there is not."""

    cn: Cn = Cn("")
    generation: Generation = Generation(0)
    not_before_at: Instant = Instant(0)
    expires_at: Instant = Instant(0)


_NOBODYS = _Nobodys()


@dataclass(frozen=True, slots=True)
class _Found:
    """All that a consume or check looks up, always all of it."""

    id: DirectiveId | None
    directive: Directive | None
    tombstone: Tombstone | None
    repeat: Repeat | None
    live: Generation | None


def consume(
    book: Book, now: Instant, *, caller: Caller, raw_id: str, attempt: str, standing: Standing, repeat_s: int
) -> Decision[bytes]:
    """The exact statement bytes, once, for the caller that it is for; or, on the same attempt, for repeat_s again."""
    if bar := identity.barred(book, caller, now):
        return _asked(caller, "consume").refuse(bar)
    found = _find(book, caller, raw_id)
    if book.ledger.stopped_at:
        return _miss(caller, "consume", found, Reason.EMERGENCY_STOP)
    if found.id and found.repeat and _repeats(found.repeat, caller, attempt, found.live, now, standing):
        again = ConsumeRepeated(found.id, caller.cn, attempt)
        return Decision((Draft(again),), found.repeat.directive.statement)
    reason = _why_not(found, caller, now)
    directive = found.directive
    if reason is None and directive and directive.signer_digest not in standing.good:
        reason = Reason.SIGNERS_UNAVAILABLE
    if reason is not None or directive is None:
        return _miss(caller, "consume", found, reason or Reason.UNKNOWN_ID)
    until = min(directive.expires_at, now + repeat_s * SECOND) if attempt else 0
    fact = DirectiveConsumed(directive.id, caller.cn, caller.generation, caller.key_digest, attempt, Instant(until))
    return Decision((Draft(fact), *_held(directive)), directive.statement)


def _held(directive: Directive) -> tuple[Draft, ...]:
    """A tool_call for a tool behind the gateway becomes an act of what it was at its admission. Whether that still is
    what the call would be, and may be, is judged when it is made."""
    frozen = directive.frozen
    if frozen is None:
        return ()
    fact = ActGranted(
        directive.id, "", directive.cn, directive.generation, f"{directive.tool}.{directive.op}", frozen.account,
        frozen.resources, frozen.args_digest, frozen.tool_digest, directive.not_before_at, directive.expires_at,
        directive.fingerprint, directive.signer_digest, directive.allowed_digest,
    )  # fmt: skip
    return (Draft(fact, (directive.statement, directive.signature)),)


def check(book: Book, now: Instant, *, caller: Caller, raw_id: str) -> Decision[str]:
    """The state of a directive that is the caller's own."""
    if bar := identity.barred(book, caller, now):
        return _asked(caller, "check").refuse(bar)
    found = _find(book, caller, raw_id)
    reason = _why_not(found, caller, now)
    if found.tombstone and reason is ENDED[found.tombstone.state]:
        return Decision((), str(found.tombstone.state))
    if reason is Reason.EXPIRED:
        return Decision((), "expired")
    if reason is None:
        return Decision((), "active")
    return _miss(caller, "check", found, reason)


def report(book: Book, now: Instant, *, caller: Caller, raw_id: str, outcome: str, note: str) -> Decision[str]:
    """What came of a directive that the caller consumed, said once; the same again is answered the same."""
    if bar := identity.barred(book, caller, now):
        return _asked(caller, "report").refuse(bar)
    found = _find(book, caller, raw_id)
    reason = _why_not(found, caller, now)
    if reason is not Reason.ALREADY_CONSUMED or found.id is None:
        return _miss(caller, "report", found, reason or Reason.NOT_CONSUMED)
    if earlier := book.reports.get(found.id):
        if (earlier.outcome, earlier.note) == (outcome, note):
            return Decision((), outcome)
        return _miss(caller, "report", found, Reason.ALREADY_REPORTED)
    fact = DirectiveReported(found.id, caller.cn, caller.generation, outcome)
    return Decision((Draft(fact, (note.encode(),)),), outcome)


def inbox(book: Book, now: Instant, *, caller: Caller, after: Instant) -> Decision[tuple[Pointer, ...]]:
    """The open, unconsumed directives of a caller and its settled requests, that came to wait later than `after`."""
    if bar := identity.barred(book, caller, now) or identity.stale(book, caller):
        return _asked(caller, "inbox").refuse(bar)
    pointers = (
        Pointer(d.id, max(d.admitted_at, d.not_before_at))
        for d in book.of_agent(caller.cn)
        if d.generation == caller.generation and shut(d.not_before_at, d.expires_at, now) is None
    )
    requests = (Pointer(id, at, About.REQUEST) for id, at in settled.of_agent(book, caller.cn, caller.generation, now))
    return Decision((), tuple(pointer for pointer in (*pointers, *requests) if pointer.notified_at > after))


def open_for_pointer(book: Book, id: DirectiveId, now: Instant) -> bool:
    """Is this directive, or settled request, still to be told to its agent?"""
    directive = book.directives.get(id)
    if directive is None:
        return settled.open_for_pointer(book, id, now)
    return shut(directive.not_before_at, directive.expires_at, now) is None


def uphold(book: Book, now: Instant, *, standing: Standing) -> Decision[None]:
    """Invalidate what was signed with a key that ssh-keygen no longer accepts."""
    signed = (id for signer in standing.bad for id in book.by_signer.get(signer, ()) if id in book.directives)
    ids = [id for id in signed if book.directives[id].expires_at > now]
    invalid = (Draft(DirectiveInvalidated(id, Reason.KEY_NOT_STANDING)) for id in ids)
    return Decision((*invalid, *consent.cancel(book, now, standing=standing)))


def _find(book: Book, caller: Caller, raw_id: str) -> _Found:
    key = DirectiveId(raw_id)
    id = key if names.is_directive_id(raw_id) else None
    agent = book.agents.get(caller.cn)
    live = agent.generation if agent else None
    return _Found(id, book.directives.get(key), book.tombstones.get(key), book.repeats.get(key), live)


def _why_not(found: _Found, caller: Caller, now: Instant) -> Reason | None:
    """Why this caller can't have this directive now. Ownership comes first: nothing is said of what is another's.

    All of it is looked at whatever is found, so that no cause is told by its time.
    """
    directive, tombstone = found.directive, found.tombstone
    target = directive or tombstone or _NOBODYS
    ended = ENDED[tombstone.state if tombstone else State.EXPIRED]
    window = directive or _NOBODYS
    closed = shut(window.not_before_at, window.expires_at, now)
    reasons = (
        Reason.MALFORMED_ID if found.id is None else None,
        Reason.UNKNOWN_ID if target is _NOBODYS else None,
        Reason.OTHER_TARGET if target.cn != caller.cn else None,
        None if target.generation == caller.generation == found.live else Reason.GENERATION_STALE,
        closed if directive else ended,
    )
    return next(filter(None, reasons), None)


def _repeats(
    repeat: Repeat, caller: Caller, attempt: str, live: Generation | None, now: Instant, standing: Standing
) -> bool:
    directive = repeat.directive
    same = (directive.cn, directive.generation, repeat.key_digest, repeat.attempt)
    return (
        bool(attempt)
        and directive.signer_digest in standing.good
        and same == (caller.cn, caller.generation, caller.key_digest, attempt)
        and live == caller.generation
        and now < repeat.until_at
    )


def _miss(caller: Caller, op: str, found: _Found, reason: Reason) -> Decision[Any]:
    return _asked(caller, op, found.id or "").refuse(reason)


def _asked(caller: Caller, op: str, subject: str = "") -> Request:
    return Request("agent", caller.cn, op, subject)
