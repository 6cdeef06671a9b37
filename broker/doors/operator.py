"""The operator door's directive routes. The caller is the operator's own machine, so each refusal says why."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Protocol

from broker.doors.http import Handler, Request, Response, Route
from broker.errors import BrokerError, Fatal, Malformed, Reason, Refused, Unavailable, Untrusted
from broker.rules import admin, listing
from broker.rules import admit as rules
from broker.rules.authority import consent
from broker.rules.book import Book
from broker.rules.decision import Request as Asked
from broker.turn import Turn
from broker.wire import answers, bodies, envelope, names, statement
from broker.wire.names import Cn, DirectiveId, Instant
from broker.wire.verified import VerifiedBytes

JSON = "application/json"
MAX_BODY_BYTES = bodies.PAIR_MAX_BYTES
FIRST_ATTEMPT_S = 10.0
log = logging.getLogger("lever.operator")


class Verify(Protocol):
    """trust/operator's verify: the exact bytes, checked by ssh-keygen. Raises Untrusted, Unavailable."""

    async def __call__(self, raw: bytes, signature: bytes, namespace: str, now: Instant, /) -> VerifiedBytes: ...


class FirstAttempt(Protocol):
    """Was the pointer delivered at the first attempt? Waits for it no longer than timeout_s."""

    async def __call__(self, id: DirectiveId, timeout_s: float, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Desk:
    """What every route of the operator door needs: verification, the corridor, the clock."""

    turn: Turn
    clock: Callable[[], Instant]
    verify: Verify

    async def order(self, request: Request, op: str) -> admin.Order:
        """The verified envelope in a request body. Raises Malformed, Untrusted, Unavailable."""
        pair = bodies.signed_pair(request.body, "envelope")
        verified = await self.verify(pair.raw, pair.signature, names.NAMESPACE_ADMIN, self.clock())
        return admin.Order(op, verified, envelope.parse(verified), asked(request, op))

    async def attached(self, request: Request, op: str, max_bytes: int) -> tuple[admin.Order, bytes]:
        """The same with what is attached, which the envelope names by its SHA-256; empty where it names none."""
        pair, attached = bodies.attached_pair(request.body, max_bytes)
        verified = await self.verify(pair.raw, pair.signature, names.NAMESPACE_ADMIN, self.clock())
        order = admin.Order(op, verified, envelope.parse(verified), asked(request, op))
        if order.envelope.params.get("digest", "") != (sha256(attached).hexdigest() if attached else ""):
            raise Malformed("attachment", "is not what params.digest says")
        return order, attached

    async def note(self, request: Request, op: str, reason: Reason) -> None:
        """Journal a refusal that no rule made."""
        try:
            await self.turn.take(lambda book, now: asked(request, op).refuse(reason), self.clock())
        except Refused:
            return

    def guarded(self, op: str, handler: Handler) -> Handler:
        """The one place where a failure becomes an answer; the same words go to the log."""

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except BrokerError as error:
                return await self._failed(request, op, error)

        return guarded

    async def _failed(self, request: Request, op: str, error: BrokerError) -> Response:
        log.warning("refused", extra={"op": op, "caller": f"uid:{request.peer_uid}", "why": str(error)})
        match error:
            case Malformed():
                await self.note(request, op, Reason.MALFORMED)
                return problem(400, str(error), Reason.MALFORMED)
            case Untrusted():
                await self.note(request, op, Reason.BAD_SIGNATURE)
                return problem(400, str(error), Reason.BAD_SIGNATURE, "lever directive selftest")
            case Refused():
                return problem(409, error.detail or str(error.reason), error.reason, error.hint)
            case Unavailable():
                return problem(503, str(error), Reason.SIGNERS_UNAVAILABLE, "lever doctor")
            case Fatal() | _:
                return answer(500, {"error": "the journal could not be written; the broker is stopping"})


@dataclass(frozen=True, slots=True)
class DirectiveRoutes:
    """send, resolve, list, revoke, selftest. diagnose: what is wrong with allowed_signers, in words."""

    desk: Desk
    terms: rules.Terms
    first_attempt: FirstAttempt
    diagnose: Callable[[Instant], Awaitable[list[str]]]

    def routes(self) -> list[Route]:
        """One method, one content type and one size a route."""
        guarded = self.desk.guarded
        return [
            Route("POST", "/directive/send", guarded("send", self._send), JSON, MAX_BODY_BYTES),
            Route("GET", "/directive/resolve", guarded("resolve", self._resolve)),
            Route("POST", "/directive/list", guarded("list", self._list), JSON, MAX_BODY_BYTES),
            Route("POST", "/directive/revoke", guarded("revoke", self._revoke), JSON, MAX_BODY_BYTES),
            Route("POST", "/directive/selftest", guarded("selftest", self._selftest), JSON, MAX_BODY_BYTES),
        ]

    async def _send(self, request: Request) -> Response:
        verified = await self._statement(request)
        value = statement.parse(verified)
        if isinstance(value.action, statement.Approval | statement.LeaseAction):
            return await self._grant(request, verified, value)
        decide = partial(
            rules.admit,
            request=asked(request, "send", value.directive_id),
            verified=verified,
            statement=value,
            terms=self.terms,
        )
        admitted = await self.desk.turn.take(decide, self.desk.clock())
        log.info("admitted", extra={"id": admitted.id, "agent": value.target.cn, "key": verified.fingerprint})
        book = self.desk.turn.book
        paused, stopped = value.target.cn in book.paused, bool(book.ledger.stopped_at)
        now_told = not (admitted.scheduled or paused or stopped)
        delivered = now_told and await self.first_attempt(admitted.id, FIRST_ATTEMPT_S)
        body: dict[str, Any] = {"id": admitted.id, "delivered": delivered}
        if paused:
            body["paused"] = True
        if stopped:
            body["stopped"] = True
        if admitted.scheduled:
            body["scheduled"] = True
        if isinstance(value.action, statement.BoundAction):
            body["enforced"] = admitted.enforced
        return answer(200, body)

    async def _grant(self, request: Request, verified: VerifiedBytes, value: statement.Statement) -> Response:
        """The answer to a request, or a lease: in force at once."""
        about = asked(request, "grant", value.directive_id)
        decide = partial(consent.grant, request=about, verified=verified, statement=value, terms=self.terms)
        granted = await self.desk.turn.take(decide, self.desk.clock())
        log.info("granted", extra={"id": granted.id, "agent": granted.cn, "key": verified.fingerprint})
        return answer(200, {"id": granted.id, "granted": True, "request_id": granted.request or None})

    async def _resolve(self, request: Request) -> Response:
        cn = names.cn(request.query.get("agent"), "agent")
        generation = await self.desk.turn.read(partial(_generation, cn=cn), self.desk.clock())
        if generation is None:
            return answer(409, {"error": "agent not yet enrolled", "hint": f"lever agent invite {cn}"})
        return answer(200, {"cn": cn, "slug": cn, "generation": generation})

    async def _list(self, request: Request) -> Response:
        order = await self.desk.order(request, "list")
        _params(order, optional={"id", "state", "nonce"})
        params = order.envelope.params
        read = partial(listing.directives, id=params.get("id", ""), state=params.get("state", ""))
        rows = await self.desk.turn.take(partial(admin.take, order=order, read=read), self.desk.clock())
        return answer(200, {"directives": rows})

    async def _revoke(self, request: Request) -> Response:
        order = await self.desk.order(request, "revoke")
        _params(order, {"id"}, {"nonce"})
        id = names.directive_id(order.envelope.params["id"], "params.id")
        revoked = await self.desk.turn.take(partial(admin.revoke, order=order, id=id), self.desk.clock())
        book = self.desk.turn.book
        known = id in book.directives or id in book.tombstones
        return answer(200, {"revoked": revoked} | ({} if known else {"known": False}))

    async def _selftest(self, request: Request) -> Response:
        try:
            verified = await self._statement(request)
            value = statement.parse(verified)
        except Untrusted as error:
            found = await self.diagnose(self.desk.clock())
            raise Untrusted("; ".join([error.why, *found])) from error
        decide = partial(
            rules.selftest, request=asked(request, "selftest"), verified=verified, statement=value, terms=self.terms
        )
        await self.desk.turn.take(decide, self.desk.clock())
        warnings = await self.diagnose(self.desk.clock())
        body = {"ok": True, "fingerprint": verified.fingerprint, "warnings": warnings}
        return answer(200, body | ({"stopped": True} if self.desk.turn.book.ledger.stopped_at else {}))

    async def _statement(self, request: Request) -> VerifiedBytes:
        pair = bodies.signed_pair(request.body, "statement")
        return await self.desk.verify(pair.raw, pair.signature, names.NAMESPACE_DIRECTIVE, self.desk.clock())


def _generation(book: Book, now: Instant, *, cn: Cn) -> int | None:
    agent = book.agents.get(cn)
    return agent.generation if agent else None


def answer(status: int, body: dict[str, Any]) -> Response:
    """A JSON answer."""
    return Response(status, answers.encode(body))


def problem(status: int, error: str, reason: Reason, hint: str = "") -> Response:
    """A refusal with its words, its enumerated reason, and what to do about it."""
    return answer(status, {"error": error, "reason": str(reason), "hint": hint})


def asked(request: Request, op: str, subject: str = "") -> Asked:
    """Who asks what, in the journal's words."""
    return Asked("operator", f"uid:{request.peer_uid}", op, subject)


def _params(order: admin.Order, required: set[str] = set(), optional: set[str] = set()) -> None:  # noqa: B006
    check_params(order.envelope.params, required, optional)


def check_params(params: dict[str, str], required: set[str], optional: set[str]) -> None:
    """Exactly these keys. Raises Malformed with the key's name."""
    for key in sorted(required - params.keys()):
        raise Malformed(f"params.{key}", "missing")
    for key in sorted(params.keys() - required - optional):
        raise Malformed(f"params.{key}", "unknown")
