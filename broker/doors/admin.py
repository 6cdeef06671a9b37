"""The operator door's other routes: agents by signed envelope, the signed watch, and health, which needs none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.doors.http import Request, Response, Route
from broker.doors.operator import JSON, MAX_BODY_BYTES, Desk, answer, check_params
from broker.errors import Malformed, Refused
from broker.rules import admin, listing
from broker.turn import Turn
from broker.wire import answers, names
from broker.wire.names import Digest, Instant
from broker.wire.record_view import view
from broker.wire.records import AgentEnrolled, AgentRevoked, Record
from broker.wire.times import show

OBSERVE_S = 900
_QUEUE = 1000


@dataclass(frozen=True, slots=True)
class Bundle:
    """What an invited agent must know of this broker. broker_ca: PEM; broker_url: where the agent door answers."""

    broker_ca: str
    broker_url: str
    ticket_s: int


@dataclass(eq=False, slots=True)
class Watchers:
    """Open observe streams. `tell` gets each record once it is durable; a watcher that lags too far is let go."""

    _queues: set[asyncio.Queue[Record | None]] = field(default_factory=set)

    def tell(self, records: tuple[Record, ...]) -> None:
        for queue in list(self._queues):
            for record in records:
                if queue.qsize() >= _QUEUE:
                    self._queues.discard(queue)
                    queue.put_nowait(None)
                    break
                queue.put_nowait(record)

    def close(self) -> None:
        """End every stream."""
        for queue in self._queues:
            queue.put_nowait(None)
        self._queues.clear()

    def open(self) -> asyncio.Queue[Record | None]:
        queue: asyncio.Queue[Record | None] = asyncio.Queue()
        self._queues.add(queue)
        return queue

    def drop(self, queue: asyncio.Queue[Record | None]) -> None:
        self._queues.discard(queue)


@dataclass(frozen=True, slots=True)
class AdminRoutes:
    """agent_invite, agent_revoke, agent_pause, agent_resume, agent_list, agent_show, observe."""

    desk: Desk
    bundle: Bundle
    watchers: Watchers

    def routes(self) -> list[Route]:
        """One method, one content type and one size a route."""
        handlers = {
            "agent_invite": self._invite,
            "agent_revoke": self._revoke,
            "agent_pause": self._pause,
            "agent_resume": self._resume,
            "agent_list": self._list,
            "agent_show": self._show,
            "observe": self._observe,
        }
        signed = [
            Route("POST", f"/admin/{op}", self.desk.guarded(op, handler), JSON, MAX_BODY_BYTES)
            for op, handler in handlers.items()
        ]
        return signed

    async def _invite(self, request: Request) -> Response:
        order = await self.desk.order(request, "agent_invite")
        params = order.envelope.params
        check_params(params, {"cn", "ticket_digest"}, {"expires_s", "tenant", "project", "nonce"})
        cn = names.cn(params["cn"], "params.cn")
        decide = partial(
            admin.invite,
            order=order,
            cn=cn,
            ticket_digest=_digest(params["ticket_digest"]),
            expires_s=self._ticket_s(params),
            tenant=names.cn(params["tenant"], "params.tenant") if "tenant" in params else "",
            project=names.cn(params["project"], "params.project") if "project" in params else "",
        )
        expires_at = await self.desk.turn.take(decide, self.desk.clock())
        bundle = {"broker_ca": self.bundle.broker_ca, "broker_url": self.bundle.broker_url}
        return answer(200, {"cn": cn, **bundle, "expires_at": show(expires_at)})

    async def _revoke(self, request: Request) -> Response:
        order = await self.desk.order(request, "agent_revoke")
        check_params(order.envelope.params, {"cn"}, {"nonce"})
        cn = names.cn(order.envelope.params["cn"], "params.cn")
        revoked = await self.desk.turn.take(partial(admin.revoke_agent, order=order, cn=cn), self.desk.clock())
        return answer(200, {"revoked": revoked})

    async def _pause(self, request: Request) -> Response:
        order = await self.desk.order(request, "agent_pause")
        check_params(order.envelope.params, {"cn"}, {"nonce"})
        cn = names.cn(order.envelope.params["cn"], "params.cn")
        paused = await self.desk.turn.take(partial(admin.pause, order=order, cn=cn), self.desk.clock())
        return answer(200, {"paused": paused})

    async def _resume(self, request: Request) -> Response:
        order = await self.desk.order(request, "agent_resume")
        check_params(order.envelope.params, {"cn"}, {"nonce"})
        cn = names.cn(order.envelope.params["cn"], "params.cn")
        resumed = await self.desk.turn.take(partial(admin.resume, order=order, cn=cn), self.desk.clock())
        return answer(200, {"resumed": resumed})

    async def _list(self, request: Request) -> Response:
        order = await self.desk.order(request, "agent_list")
        check_params(order.envelope.params, set(), {"nonce"})
        return await self._agents(order, "")

    async def _show(self, request: Request) -> Response:
        order = await self.desk.order(request, "agent_show")
        check_params(order.envelope.params, {"cn"}, {"nonce"})
        return await self._agents(order, names.cn(order.envelope.params["cn"], "params.cn"))

    async def _agents(self, order: admin.Order, cn: str) -> Response:
        read = partial(listing.agents, cn=cn)
        rows = await self.desk.turn.take(partial(admin.take, order=order, read=read), self.desk.clock())
        return answer(200, {"agents": rows})

    async def _observe(self, request: Request) -> Response:
        order = await self.desk.order(request, "observe")
        check_params(order.envelope.params, set(), {"id", "nonce"})
        id, queue = order.envelope.params.get("id", ""), self.watchers.open()
        try:
            await self.desk.turn.take(partial(admin.take, order=order), self.desk.clock())
        except BaseException:
            self.watchers.drop(queue)
            raise
        lines = _lines(self.watchers, queue, id, self._state)
        return Response(200, b"", content_type="application/x-ndjson", stream=lines)

    async def _state(self, id: str) -> list[listing.Row]:
        """How one directive stands, as lines of the stream."""
        if not id:
            return []
        rows = await self.desk.turn.read(partial(listing.directives, id=id), self.desk.clock())
        return [row | {"action_kind": row["kind"], "kind": "state"} for row in rows]

    def _ticket_s(self, params: dict[str, str]) -> int:
        word = params.get("expires_s", str(self.bundle.ticket_s))
        if not word.isascii() or not word.isdigit() or len(word) > 5 or not 1 <= int(word) <= 86400:
            raise Malformed("params.expires_s", "expected whole seconds, 1 to 86400")
        return int(word)


def health_route(turn: Turn, clock: Callable[[], Instant], health: Callable[[], dict[str, Any]]) -> Route:
    """How the broker is: the one route that is there while directives are disabled too."""

    async def handler(request: Request) -> Response:
        stopped_at = turn.book.ledger.stopped_at
        told = health() | {"stopped_at": show(stopped_at) if stopped_at else None}
        try:
            turn.now(clock())
        except Refused:
            return answer(200, told | {"clock_behind": True})
        return answer(200, told | {"clock_behind": False})

    return Route("GET", "/health", handler)


def _digest(word: str) -> Digest:
    try:
        raw = bytes.fromhex(word)
    except ValueError:
        raw = b""
    if len(raw) != 32 or raw.hex() != word:
        raise Malformed("params.ticket_digest", "expected the SHA-256 of the ticket as 64 of 0-9 a-f")
    return Digest(raw)


async def _lines(
    watchers: Watchers,
    queue: asyncio.Queue[Record | None],
    id: str,
    state: Callable[[str], Awaitable[list[listing.Row]]],
) -> AsyncIterator[bytes]:
    """How the directive stands, then one JSON object a line for each durable record. At most 15 minutes.

    The queue was opened before the state was read, so nothing falls between the two. What happens to an agent ends its
    directives without naming them: then the state is told anew.
    """
    try:
        for row in await state(id):
            yield answers.encode(row) + b"\n"
        async with asyncio.timeout(OBSERVE_S):
            while (record := await queue.get()) is not None:
                row = view(record)
                about = not id or id in (row.get("id"), *row.get("ids", ()))
                ended = isinstance(record.fact, AgentEnrolled | AgentRevoked)
                for told in [row] if about else await state(id) if ended else []:
                    yield answers.encode(told) + b"\n"
    except TimeoutError:
        return
    finally:
        watchers.drop(queue)
