"""Asking the operator: once for the same thing, a few things at a time, not again what was just refused, and less the
more was refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.errors import Reason
from broker.rules.authority.entries import Request, RequestState
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.decision import Request as Asked
from broker.wire.act_records import RequestOpened
from broker.wire.names import Instant
from broker.wire.records import Draft
from broker.wire.times import SECOND

REQUEST_S: Final = 600
DENIED_S: Final = 600
MAX_PENDING: Final = 8


@dataclass(frozen=True, slots=True)
class ConsentRequired:
    """Only the operator's consent is missing. other_arguments: what was signed was for others."""

    request: Request
    other_arguments: bool


def ask(
    book: Book,
    now: Instant,
    *,
    asked: Asked,
    wanted: RequestOpened,
    args: bytes,
    started: tuple[Draft, ...],
    other_arguments: bool = False,
) -> Decision[ConsentRequired]:
    """Open this request, unless the same waits already or was refused. started: the record of a run that it begins."""
    of_agent = list(book.ledger.requests_of(wanted.cn, wanted.generation))
    pending = [one for one in of_agent if one.state is RequestState.PENDING and now < one.expires_at]
    if same := next((one for one in pending if _about(one) == _about(wanted)), None):
        return Decision((), ConsentRequired(same, other_arguments))
    denied = [one for one in of_agent if one.state is RequestState.DENIED and now < one.ended_at + DENIED_S * SECOND]
    if same := next((one for one in denied if _digest(one) == _digest(wanted)), None):
        book.looked_at.add(same.request)  # it is told here, and needs no pointer any more
        return asked.refuse(Reason.REQUEST_DENIED, same.note or "the operator said no")
    if len(pending) + len(denied) >= MAX_PENDING:
        counted = f"{len(pending)} requests wait for the operator, {len(denied)} were refused in the last 10 minutes"
        return asked.refuse(Reason.TOO_MANY_PENDING, counted)
    opened = Request(
        wanted.request, wanted.cn, wanted.generation, wanted.run, wanted.regime, wanted.tool, wanted.account,
        wanted.resources, wanted.args_digest, wanted.tool_digest, wanted.policies, wanted.reason, now,
        wanted.expires_at, (), args,
    )  # fmt: skip
    return Decision((*started, Draft(wanted, (args,))), ConsentRequired(opened, other_arguments))


def until(now: Instant) -> Instant:
    """How long a request of this moment lives."""
    return Instant(now + REQUEST_S * SECOND)


def _about(one: Request | RequestOpened) -> tuple[object, ...]:
    """A lease is asked for by account; an act by all that it will be bound to."""
    if one.regime == "lease":
        return one.regime, one.account
    return one.regime, one.tool, one.args_digest, one.account, one.resources, one.tool_digest


def _digest(one: Request | RequestOpened) -> tuple[object, ...]:
    """What was refused: the account, or the call, whatever the policy makes of it since."""
    return (one.regime, one.account) if one.regime == "lease" else (one.regime, one.tool, one.args_digest)
