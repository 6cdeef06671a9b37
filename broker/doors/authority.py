"""The operator door's routes of what agents may do: policies, tools, requests, leases, runs, the emergency stop."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from broker.doors.http import Request, Response, Route
from broker.doors.operator import JSON, MAX_BODY_BYTES, Desk, answer, asked, check_params, problem
from broker.errors import Malformed, Reason, Unavailable
from broker.rules import admin
from broker.rules.authority import consent, orders, rows
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.wire import bodies, names
from broker.wire.catalogue import Listing, server_name
from broker.wire.names import Instant

MAX_ATTACHED_BYTES = 2 * 1024 * 1024
MAX_MESSAGE_BYTES = 2 * MAX_ATTACHED_BYTES + 65536
Handler = Callable[[admin.Order, bytes], Awaitable[Response]]


class Servers(Protocol):
    """The tool servers, as far as the operator asks about them. Raises Unavailable, Malformed."""

    @property
    def names(self) -> tuple[str, ...]: ...
    async def listing(self, server: str) -> Listing: ...


@dataclass(frozen=True, slots=True)
class AuthorityRoutes:
    """Each of `POST /admin/<op>` takes one signed envelope; an attachment is bound by its SHA-256 in `digest`."""

    desk: Desk
    servers: Servers
    draw: Callable[[], str]

    def routes(self) -> list[Route]:
        """One method, one content type and one size a route."""
        handlers: dict[str, Handler] = {
            "policy_apply": self._policy_apply,
            "policy_show": self._policy_show,
            "tools_list": self._tools_list,
            "tools_accept": self._tools_accept,
            "request_list": self._request_list,
            "request_deny": self._request_deny,
            "act_revoke": self._act_revoke,
            "lease_list": self._lease_list,
            "lease_close": self._lease_close,
            "run_list": self._run_list,
            "run_new": self._run_new,
            "run_stop": self._run_stop,
            "stop_lift": self._stop_lift,
            "outcome_note": self._outcome_note,
        }
        signed = [
            Route("POST", f"/admin/{op}", self.desk.guarded(op, self._signed(op, handler)), JSON, _size(op))
            for op, handler in handlers.items()
        ]
        guarded = self.desk.guarded
        return [
            *signed,
            Route("GET", "/request", guarded("request", self._request)),
            Route("POST", "/stop", guarded("stop", self._stop), JSON, 16),
            Route("POST", "/usage", guarded("usage", self._usage), JSON, 4096),
        ]

    def _signed(self, op: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            order, attached = await self.desk.attached(request, op, MAX_ATTACHED_BYTES)
            return await handler(order, attached)

        return handle

    async def _take(self, decide: Callable[[Book, Instant], Decision[Any]]) -> Any:
        return await self.desk.turn.take(decide, self.desk.clock())

    async def _read(self, order: admin.Order, read: Callable[[Book, Instant], dict[str, Any]]) -> Response:
        return answer(200, await self._take(partial(admin.take, order=order, read=read)))

    # --- policies and tools

    async def _policy_apply(self, order: admin.Order, attached: bytes) -> Response:
        params = _params(order, {"scope", "digest"})
        scope = _scope(params["scope"])
        version = await self._take(partial(orders.apply_policy, order=order, scope=scope, raw=attached))
        return answer(200, {"scope": scope, "version": version})

    async def _policy_show(self, order: admin.Order, attached: bytes) -> Response:
        _params(order, set())
        return await self._read(order, lambda book, _: rows.policies(book))

    async def _tools_list(self, order: admin.Order, attached: bytes) -> Response:
        params = _params(order, set(), {"server"})
        await self._take(partial(admin.take, order=order))
        wanted = (server_name(params["server"], "params.server"),) if "server" in params else self.servers.names
        seen: dict[str, Listing | None] = {}
        unavailable = {}
        for server in wanted:
            try:
                seen[server] = await self.servers.listing(server)
            except (Unavailable, Malformed) as error:  # one that is down hides none of the others
                if server not in self.servers.names:
                    raise
                seen[server] = None
                why = str(error).removeprefix(f"{server}: ")
                unavailable[server] = {"why": why, "said": getattr(error, "said", "")}
        found = await self.desk.turn.read(
            lambda book, _: {server: rows.tools(book, server, one) for server, one in seen.items()}, self.desk.clock()
        )
        return answer(200, {"servers": found, "unavailable": unavailable})

    async def _tools_accept(self, order: admin.Order, attached: bytes) -> Response:
        _params(order, {"digest"})
        return answer(200, {"accepted": await self._take(partial(orders.accept_tools, order=order, raw=attached))})

    # --- requests and what answers them

    async def _request(self, request: Request) -> Response:
        """One request by its random id, with the exact bytes: who knows the id may see what is to be signed."""
        id = names.directive_id(request.query.get("id"), "id")

        def read(book: Book, now: Instant) -> rows.Row | None:
            if (found := book.ledger.requests.get(id)) is None:
                return None
            return rows.asked(book, found, now) | {"args": base64.b64encode(found.args).decode()}

        if (row := await self.desk.turn.read(read, self.desk.clock())) is None:
            return problem(409, f"there is no request {id}", Reason.UNKNOWN_REQUEST, "lever request list")
        return answer(200, row)

    async def _request_list(self, order: admin.Order, attached: bytes) -> Response:
        everything = "all" in _params(order, set(), {"all"})
        return await self._read(
            order, lambda book, now: {"requests": rows.requests(book, now, everything), "acts": rows.acts(book, now)}
        )

    async def _request_deny(self, order: admin.Order, attached: bytes) -> Response:
        params = _params(order, {"id"}, {"note"})
        note = _note(params.get("note", ""))
        await self._take(partial(consent.deny, order=order, id=params["id"], note=note))
        return answer(200, {"denied": True})

    async def _act_revoke(self, order: admin.Order, attached: bytes) -> Response:
        params = _params(order, {"id"})
        return answer(200, {"revoked": await self._take(partial(orders.revoke_act, order=order, id=params["id"]))})

    async def _lease_list(self, order: admin.Order, attached: bytes) -> Response:
        _params(order, set())
        return await self._read(
            order, lambda book, now: {"leases": rows.leases(book, now), "closed": rows.ended_leases(book)}
        )

    async def _lease_close(self, order: admin.Order, attached: bytes) -> Response:
        params = _params(order, {"id"})
        closed = await self._take(partial(orders.shut_lease, order=order, id=params["id"]))
        return answer(200, {"closed": closed, "known": params["id"] in self.desk.turn.book.ledger.lease_ids})

    # --- runs, and the end of everything

    async def _run_list(self, order: admin.Order, attached: bytes) -> Response:
        _params(order, set())
        return await self._read(
            order, lambda book, now: {"runs": rows.runs(book, now), "stopped": bool(book.ledger.stopped_at)}
        )

    async def _run_new(self, order: admin.Order, attached: bytes) -> Response:
        params = _params(order, {"cn"})
        cn = names.cn(params["cn"], "params.cn")
        return answer(200, {"run": await self._take(partial(orders.new_run, order=order, cn=cn, run=self.draw()))})

    async def _run_stop(self, order: admin.Order, attached: bytes) -> Response:
        params = _params(order, {"run"})
        return answer(200, {"stopped": await self._take(partial(orders.stop_run, order=order, run=params["run"]))})

    async def _stop(self, request: Request) -> Response:
        stopped = await self._take(partial(orders.stop_all, request=asked(request, "stop")))
        return answer(200, {"stopped": stopped})

    async def _stop_lift(self, order: admin.Order, attached: bytes) -> Response:
        _params(order, set())
        return answer(200, {"lifted": await self._take(partial(orders.lift_stop, order=order))})

    async def _outcome_note(self, order: admin.Order, attached: bytes) -> Response:
        params = _params(order, {"claim", "note"})
        decide = partial(orders.note_outcome, order=order, claim=params["claim"], note=_note(params["note"]))
        return answer(200, {"noted": await self._take(decide)})

    async def _usage(self, request: Request) -> Response:
        figures = bodies.usage_body(request.body)
        decide = partial(
            orders.report_usage,
            request=asked(request, "usage", figures.run or figures.agent),
            run=figures.run,
            agent=figures.agent,
            input_tokens=figures.input_tokens,
            output_tokens=figures.output_tokens,
            cost_micro=figures.cost_micro,
        )
        run = await self._take(decide)
        return answer(200, {"added": bool(run), "run": run or None})


def _size(op: str) -> int:
    """The most that a request to this operation has: most have nothing attached."""
    return MAX_ATTACHED_BYTES * 2 if op in ("policy_apply", "tools_accept") else MAX_BODY_BYTES


def _params(order: admin.Order, required: set[str], optional: set[str] = frozenset()) -> dict[str, str]:  # type: ignore[assignment]
    check_params(order.envelope.params, required, {*optional, "nonce"})
    return order.envelope.params


def _note(note: str) -> str:
    if len(note.encode()) > bodies.MAX_NOTE_BYTES:
        raise Malformed("params.note", f"expected at most {bodies.MAX_NOTE_BYTES} bytes")
    return note


def _scope(word: str) -> str:
    kind, separator, name = word.partition("/")
    if word == "instance":
        return word
    if kind not in ("tenant", "project", "agent") or not separator:
        raise Malformed("params.scope", "expected instance, tenant/NAME, project/NAME or agent/NAME")
    return f"{kind}/{names.cn(name, 'params.scope')}"
