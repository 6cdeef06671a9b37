"""The agent door's tool routes: what an agent may see and call, under the same guard as the directive routes."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Protocol

from broker.doors.agent import AgentDoor
from broker.doors.http import Request, Response, Route
from broker.errors import Fatal, Malformed, Reason, Refused
from broker.rules import identity
from broker.wire import answers, bodies, tool_results
from broker.wire.caller import Caller
from broker.wire.catalogue import PinnedTool
from broker.wire.strict_json import JsonObject, JsonValue
from broker.wire.tool_results import Result

MAX_BODY_BYTES = bodies.CALL_BODY_MAX_BYTES
_MAYBE_DONE = (
    "the broker could not write what this call came to, which may have been carried out: once the broker is back, ask "
    "with the same call_id, or request_status; do not make it anew before"
)
log = logging.getLogger("lever.agents")


class Gateway(Protocol):
    """What the door needs of the gateway. Raises Refused, Fatal."""

    def tools(self, caller: Caller) -> list[JsonObject]: ...
    def accepted(self, name: str) -> PinnedTool | None: ...
    async def call(
        self, caller: Caller, name: str, arguments: JsonValue, *, call_id: str = "", wait_s: float = 0.0
    ) -> Result: ...


@dataclass(frozen=True, slots=True)
class ToolRoutes:
    """GET /tools, POST /tools/call. Both answer 200 to whoever may ask; the result says what became of the call."""

    door: AgentDoor
    gateway: Gateway

    def routes(self) -> list[Route]:
        """One method, one content type and one size a route."""
        guarded = self.door.guarded
        return [
            Route("GET", "/tools", guarded("tools", self._list)),
            Route("POST", "/tools/call", guarded("call", self._call), "application/json", MAX_BODY_BYTES),
        ]

    async def _list(self, request: Request) -> Response:
        caller = await self._caller(request, "tools")
        return Response(200, answers.encode({"tools": self.gateway.tools(caller)}))

    async def _call(self, request: Request) -> Response:
        caller = await self._caller(request, "call")
        call = bodies.call_body(request.body)
        result = await self.called(caller, call.name, call.arguments, call.call_id, call.wait_s)
        return Response(200, answers.encode(result))

    async def called(self, caller: Caller, name: str, arguments: JsonValue, call_id: str, wait_s: float) -> Result:
        """The result of a tool call, whatever it came to. Raises Refused for whoever may not ask at all.

        Where it fails, that is said in words: whoever reads of a miss, or of a broker that is away, makes a call anew.
        """
        try:
            return await self.gateway.call(caller, name, arguments, call_id=call_id, wait_s=wait_s)
        except (Fatal, Malformed) as error:  # nothing that the agent wrote is at fault by now
            log.error("what a call came to was not written", extra={"agent": caller.cn, "why": str(error)})
            return tool_results.refused("unavailable", _MAYBE_DONE)  # nothing that the journal may not hold is said
        except Refused as error:
            if error.reason in BARS:
                raise
            return tool_results.refused(str(error.reason), error.detail or str(error.reason))

    async def _caller(self, request: Request, op: str) -> Caller:
        caller = await self.door.caller(request, op)
        if why := identity.stale(self.door.turn.book, caller):
            raise Refused(why)
        await self.door.limit(op, caller)
        return caller


BARS: frozenset[Any] = frozenset(
    (
        Reason.CERTIFICATE_EXPIRED,
        Reason.AGENT_REVOKED,
        Reason.AGENT_FROZEN,
        Reason.AGENT_PAUSED,
        Reason.GENERATION_STALE,
        Reason.CLOCK_BEHIND,
    )
)
