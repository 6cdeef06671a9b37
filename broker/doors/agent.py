"""The agent door: mutual TLS. Every miss of consume and check is one answer; every bar is another; neither says why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Protocol

from broker.doors.http import Handler, Request, Response, Route
from broker.errors import BrokerError, Malformed, Reason, Refused, Untrusted
from broker.rules import consume as rules
from broker.rules import decision, identity
from broker.rules.rates import Bucket, TokenBucket, full
from broker.turn import Turn
from broker.wire import answers, bodies, times
from broker.wire.caller import Caller
from broker.wire.names import Cn, Digest, Instant
from broker.wire.pointer import About
from broker.wire.verified import Standing

log = logging.getLogger("lever.agents")
MAX_WAIT_S = 30.0
_JSON = "application/json"
_OPAQUE = ("consume", "check", "report")
_STRANGER = Cn("-")
_BUCKETS = 10_000
_BARS = {
    Reason.CERTIFICATE_EXPIRED,
    Reason.AGENT_REVOKED,
    Reason.AGENT_FROZEN,
    Reason.AGENT_PAUSED,
    Reason.NO_CERTIFICATE,
}
_MISS = Response(404, answers.MISS)
_UNAVAILABLE = Response(503, b'{"error":"unavailable"}')
_FORBIDDEN = Response(403, answers.FORBIDDEN)


class Inbox(Protocol):
    """Where a long poll waits for the next pointer of an agent."""

    def mark(self, cn: Cn) -> int: ...
    async def wait(self, cn: Cn, timeout_s: float, mark: int | None = None) -> None: ...


class Authority(Protocol):
    """What the door needs of the certificate authority. Raises Untrusted."""

    def caller_of(self, der: bytes) -> Caller: ...
    def read_request(self, pem: str) -> tuple[identity.Ask, identity.Issue]: ...


@dataclass(frozen=True, slots=True)
class Rates:
    """consume: calls about directives, of one identity; call: its tool calls and looks at the tools; inbox: its looks
    there, and as many messages to /mcp; renew: its renewals; enrol: redemptions of one ticket, and together whatever
    comes from those who hold neither a ticket nor a certificate."""

    consume: TokenBucket
    call: TokenBucket
    inbox: TokenBucket
    renew: TokenBucket
    enrol: TokenBucket

    def of(self, op: str) -> tuple[str, TokenBucket]:
        """Which rate an operation is charged to."""
        match op:
            case "inbox" | "mcp":
                return op, self.inbox
            case "call" | "tools":
                return "call", self.call
            case "renew":
                return op, self.renew
            case "enrol":
                return op, self.enrol
            case _:
                return "consume", self.consume


@dataclass(slots=True)
class AgentDoor:
    """The routes an agent may call, and what they need.

    clock: the wall clock; steady: one that nobody sets, for rates. standing: which operator keys count at this moment.
    repeat_s: how long a consume under an attempt key may be asked again.
    """

    turn: Turn
    clock: Callable[[], Instant]
    steady: Callable[[], Instant]
    authority: Authority
    standing: Callable[[], Awaitable[Standing]]
    repeat_s: int
    inbox: Inbox
    rates: Rates
    _buckets: dict[tuple[str, object], Bucket] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        """One method, one content type and one size a route."""
        return [
            Route("POST", "/directive/consume", self.guarded("consume", self._consume), _JSON, 4096),
            Route("POST", "/directive/check", self.guarded("check", self._check), _JSON, 4096),
            Route("POST", "/directive/report", self.guarded("report", self._report), _JSON, 8192),
            Route("GET", "/inbox", self.guarded("inbox", self._inbox)),
            Route("POST", "/renew", self.guarded("renew", self._renew), _JSON, 16384),
            Route("POST", "/enrol", self.guarded("enrol", self._enrol), _JSON, 16384),
        ]

    async def _consume(self, request: Request) -> Response:
        caller = await self.caller(request, "consume")
        await self.limit("consume", caller)
        body = bodies.consume_body(request.body)
        return Response(200, await self.consumed(caller, body.id, body.attempt or ""))

    async def _check(self, request: Request) -> Response:
        caller = await self.caller(request, "check")
        await self.limit("check", caller)
        return Response(200, await self.checked(caller, bodies.check_body(request.body)))

    async def _report(self, request: Request) -> Response:
        caller = await self.caller(request, "report")
        await self.limit("report", caller)
        body = bodies.report_body(request.body)
        return Response(200, await self.reported(caller, body.id, body.outcome, body.note))

    async def _inbox(self, request: Request) -> Response:
        caller = await self.caller(request, "inbox")
        await self.limit("inbox", caller)
        return Response(200, await self.waiting(request, caller, *_inbox_query(request)))

    async def _renew(self, request: Request) -> Response:
        caller = await self.caller(request, "renew")
        await self.limit("renew", caller)
        ask, issue = self.authority.read_request(bodies.csr_body(request.body))
        decide = partial(identity.renew, caller=caller, ask=ask, issue=issue)
        return Response(200, answers.certificate(await self.turn.take(decide, self.clock())))

    async def _enrol(self, request: Request) -> Response:
        body = bodies.enrol_body(request.body)
        digest = Digest(sha256(body.ticket.encode()).digest())
        # Who holds no ticket shares one bucket with all others of that kind, and uses up nobody's but theirs.
        await self.limit("enrol", digest if digest in self.turn.book.tickets else None)
        ask, issue = self.authority.read_request(body.csr)
        decide = partial(identity.enrol, ticket_digest=digest, ask=ask, issue=issue)
        return Response(200, answers.certificate(await self.turn.take(decide, self.clock())))

    async def consumed(self, caller: Caller, id: str, attempt: str) -> bytes:
        """The answer to a consume. Raises Refused."""
        decide = partial(
            rules.consume,
            caller=caller,
            raw_id=id,
            attempt=attempt,
            standing=await self.standing(),
            repeat_s=self.repeat_s,
        )
        raw = await self.turn.take(decide, self.clock())
        return answers.consumed(raw, enforced=id in self.turn.book.ledger.acts)

    async def checked(self, caller: Caller, id: str) -> bytes:
        """The answer to a check. Raises Refused."""
        await self.standing()
        return answers.checked(id, await self.turn.take(partial(rules.check, caller=caller, raw_id=id), self.clock()))

    async def reported(self, caller: Caller, id: str, outcome: str, note: str) -> bytes:
        """The answer to a report. Raises Refused."""
        decide = partial(rules.report, caller=caller, raw_id=id, outcome=outcome, note=note)
        return answers.reported(id, await self.turn.take(decide, self.clock()))

    async def waiting(
        self, request: Request, caller: Caller, wait_s: float, after: Instant, requests: bool = False
    ) -> bytes:
        """The pointers that wait, or that come within so long, while the caller is there. Raises Refused.

        requests: does one of a settled request end the wait?
        """
        decide = partial(rules.inbox, caller=caller, after=after)
        loop, left_s = asyncio.get_running_loop(), wait_s
        deadline = loop.time() + wait_s
        while True:
            mark = self.inbox.mark(caller.cn)
            found = await self.turn.take(decide, self.clock())
            if left_s <= 0 or any(requests or pointer.about is About.DIRECTIVE for pointer in found):
                break
            await request.wait(self.inbox.wait(caller.cn, left_s, mark))
            woken = self.inbox.mark(caller.cn) != mark  # else the time is up, the client gone, or the door closes
            left_s = deadline - loop.time() if woken else 0.0
        told = {about: [(one.id, one.notified_at) for one in found if one.about is about] for about in About}
        return answers.pointers(told[About.DIRECTIVE], told[About.REQUEST])

    async def caller(self, request: Request, op: str) -> Caller:
        """Who calls, by the certificate of this connection, judged anew for each request. Raises Refused."""
        caller = request.connection.get("caller")
        if caller is None:
            if request.client_certificate_der is None:
                await self._refuse(_STRANGER, op, Reason.NO_CERTIFICATE)
            caller = self.authority.caller_of(request.client_certificate_der or b"")
            request.connection["caller"] = caller
        assert isinstance(caller, Caller)
        now = self.clock()
        judge = identity.shut_out if op == "renew" else identity.barred
        if bar := judge(self.turn.book, caller, now):
            await self._refuse(caller.cn, op, bar)
        if not identity.stale(self.turn.book, caller):
            self.turn.book.last_seen[caller.cn] = now
        return caller

    def stands(self, der: bytes) -> bool:
        """Is this the certificate of an agent as it is enrolled now?"""
        try:
            caller = self.authority.caller_of(der)
        except Untrusted:
            return False
        book = self.turn.book
        return not (identity.shut_out(book, caller, self.clock()) or identity.stale(book, caller))

    async def limit(self, op: str, who: Caller | Digest | None) -> None:
        """Charge an identity, a ticket, or all strangers together. A replaced identity uses up nothing of the new."""
        rate, bucket = self.rates.of(op if who else "enrol")
        cn, holder = (who.cn, (who.cn, who.generation)) if isinstance(who, Caller) else (_STRANGER, who)
        now = self.steady()
        if len(self._buckets) >= _BUCKETS:
            self._buckets = {key: level for key, level in self._buckets.items() if not full(level, now)}
        state, allowed = bucket.take(self._buckets.get((rate, holder)), now)
        self._buckets[rate, holder] = state
        if not allowed:
            await self._refuse(cn, op, Reason.RATE_LIMITED)

    async def _refuse(self, cn: str, op: str, reason: Reason) -> None:
        request = decision.Request("agent", cn, op)
        await self.turn.take(lambda book, now: request.refuse(reason), self.clock())

    async def _untrusted(self, request: Request, op: str, error: BrokerError) -> Response:
        """A certificate or request that does not check out: one answer, one note, and the words for the log alone."""
        caller = request.connection.get("caller")
        cn = caller.cn if isinstance(caller, Caller) else _STRANGER
        try:
            if cn is _STRANGER:  # anybody else was charged already
                await self.limit(op, None)
            log.warning("not trusted", extra={"op": op, "caller": cn, "why": str(error)})
            await self._refuse(cn, op, Reason.NOT_TRUSTED)
        except Refused as refused:
            return _REASONED.get(refused.reason, _FORBIDDEN)
        except BrokerError:
            return _FORBIDDEN
        return _FORBIDDEN

    def guarded(self, op: str, handler: Handler) -> Handler:
        """The one place where a failure becomes an answer: the op decides which, the cause never does."""
        refused = _MISS if op in _OPAQUE else _FORBIDDEN

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except (Malformed, Untrusted) as error:
                if isinstance(error, Malformed) and op != "enrol":
                    raise
                return await self._untrusted(request, op, error)
            except Refused as error:
                return _REASONED.get(error.reason, refused)
            except BrokerError:  # the journal failed, or a verifier is away: not a verdict on who asks
                return refused if op in (*_OPAQUE, "enrol") else _UNAVAILABLE
            except Exception:
                log.exception("a handler failed", extra={"op": op})
                return refused if op in (*_OPAQUE, "enrol") else _UNAVAILABLE

        return guarded


_REASONED = {
    **dict.fromkeys(_BARS, _FORBIDDEN),
    Reason.RATE_LIMITED: Response(429, answers.RATE_LIMITED),
    Reason.CLOCK_BEHIND: Response(503, b'{"error":"clock_behind"}'),
}


def _inbox_query(request: Request) -> tuple[float, Instant, bool]:
    """`wait` in whole seconds, `after` as a time, `requests` if it is 1; all may be missing. Raises Malformed."""
    wait, after, requests = request.query.get("wait", "0"), request.query.get("after"), request.query.get("requests")
    if not wait.isascii() or not wait.isdigit() or len(wait) > 3:
        raise Malformed("wait", "expected whole seconds, 30 at most")
    return min(float(wait), MAX_WAIT_S), times.parse(after, "after") if after else Instant(0), requests == "1"
