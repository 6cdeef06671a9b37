"""The gateway: an agent's tool call, from the decision to the answer. What decides is what executes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from broker.call_ends import CallEnds
from broker.clocks import clock, steady
from broker.config import Config
from broker.effects.tool_servers.look import Look
from broker.effects.tool_servers.outcome import Done, Failed, Holder, NotSent, Unknown
from broker.effects.tool_servers.servers import NoServers, Servers
from broker.errors import BrokerError, Fatal, Malformed, Reason, Refused, Unavailable
from broker.rules.authority import closing, leases, orders, own_calls, passage, shown
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.entries import Claim, RequestState
from broker.rules.authority.judgement import Call, Unresolved
from broker.rules.authority.passage import Claimed, Ids, LookFirst, Passing, Repeated
from broker.rules.book import Book
from broker.rules.decision import Decision
from broker.rules.entries import Enrolment
from broker.turn import Turn
from broker.wire import own_tools, tool_results
from broker.wire.act_records import ActGranted, LeaseOpened, RequestDenied, RequestEnded
from broker.wire.caller import Caller
from broker.wire.catalogue import Listing, PinnedTool
from broker.wire.names import Cn, Instant
from broker.wire.records import BrokerStarted, Fact, PayloadRef
from broker.wire.strict_json import JsonObject, JsonValue
from broker.wire.tool_results import Result
from broker.wire.verified import Standing

MAX_WAIT_S: Final = 30.0
MAX_CALL_S: Final = 300.0
LOOK_S: Final = 60.0
T = TypeVar("T")
ANSWERS: Final = (ActGranted, LeaseOpened, RequestDenied, RequestEnded)
_UNWRITTEN: Final = (
    "this call may have been carried out: what came of it can't be written as long as the broker's clock is behind. "
    "Ask again later, with the same call_id or request_status; do not make it anew before"
)
log = logging.getLogger("lever.gateway")


class Wakes(Protocol):
    """Where a call waits for something to happen to an agent's requests."""

    def mark(self, cn: Cn) -> int: ...
    async def wait(self, cn: Cn, timeout_s: float, mark: int | None = None) -> None: ...


@dataclass(slots=True)
class Gateway:
    """servers: the only way to an upstream tool. spawn: runs a task that no caller's leaving ends.

    read: stored bytes, by where they are; started: the record of this life's beginning; clock: the wall clock;
    boottime: one that counts suspend, in seconds; draw: a fresh random name.
    """

    turn: Turn
    read: Callable[[PayloadRef], bytes]
    started: BrokerStarted
    servers: Servers
    names: tuple[str, ...]
    clock: Callable[[], Instant]
    boottime: Callable[[], float]
    draw: Callable[[], str]
    standing: Callable[[], Awaitable[Standing]]
    wakes: Wakes
    spawn: Callable[[Coroutine[Any, Any, Any]], object]
    _settled: bool = False
    _began: dict[str, float] = field(default_factory=dict)  # by `boottime`, when a lease last waited for its first read
    _opened: dict[str, float] = field(default_factory=dict)  # by `boottime`, when a lease was first seen
    _ends: CallEnds = field(init=False)

    def __post_init__(self) -> None:
        self._ends = CallEnds(self.turn, self.clock)

    def tools(self, caller: Caller) -> list[JsonObject]:
        """The definitions that this agent sees, under their names for it. Enforcement never looks at this list."""
        listed = shown.listed(self.turn.book, caller)
        return [*own_tools.OWN, *listed] if listed else []

    def accepted(self, name: str) -> PinnedTool | None:
        """The tool that agents call by this name, as it was accepted."""
        server, _, tool = name.partition(tool_results.SEPARATOR)
        return self.turn.book.ledger.tool(server, tool)

    async def call(
        self, caller: Caller, name: str, arguments: JsonValue, *, call_id: str = "", wait_s: float = 0.0
    ) -> Result:
        """Pass the call on, once, or say why not. Raises Refused, for what is no tool's name as well."""
        if name in own_tools.NAMES:
            own = _read(Reason.INVALID_ARGUMENTS, partial(own_tools.parse, name, arguments))
            return await self._own(caller, own, min(wait_s, MAX_WAIT_S))
        tool = _read(Reason.UNKNOWN_TOOL, partial(tool_results.qualified, name))
        await self.settle()
        deadline = asyncio.get_running_loop().time() + min(wait_s, MAX_WAIT_S)
        while True:
            mark = self.wakes.mark(caller.cn)
            answer = await self._decided(caller, Call(caller.cn, tool, arguments), call_id)
            if not isinstance(answer, ConsentRequired):
                return answer
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                return tool_results.consent_required(answer.request, answer.other_arguments)
            await self.wakes.wait(caller.cn, left_s, mark)

    def elapsed_s(self) -> dict[str, float]:
        """How long ago each lease had its first read, by a clock that a suspended machine does not stop.

        Counted from the last look at which it still waited, just before its first read was decided on: never too late.
        """
        leases, now = self.turn.book.ledger.leases, self.boottime()
        self._began = {id: self._began.get(id, now) if one.started_at else now for id, one in leases.items()}
        return {id: now - at for id, at in self._began.items()}

    def waited_s(self) -> dict[str, float]:
        """How long ago each lease was opened, by the same clock: counted from the first look, when it is durable."""
        leases, now = self.turn.book.ledger.leases, self.boottime()
        self._opened = {id: self._opened.get(id, now) for id in leases}
        return {id: now - at for id, at in self._opened.items()}

    def heard(self, answers: Sequence[Fact]) -> list[Cn]:
        """Of ANSWERS that are durable now: whom they are for. From here on a new lease waits for its first read."""
        self.waited_s()
        return [cn for fact in answers if (cn := self._whose(fact))]

    def _whose(self, fact: Fact) -> Cn | None:
        if isinstance(fact, RequestDenied | RequestEnded):
            request = self.turn.book.ledger.requests.get(fact.request)
            return request.cn if request else None
        return fact.cn if isinstance(fact, ActGranted | LeaseOpened) else None

    def retire(self) -> None:
        """End the processes of whoever is no longer the one that they were started for: once their calls have ended."""
        agents = self.turn.book.agents

        def is_former(holder: Holder) -> bool:
            agent = agents.get(holder.cn)
            return not agent or (agent.generation, agent.state) != (holder.generation, Enrolment.ENROLLED)

        self.servers.retire(is_former)

    async def stop(self) -> None:
        """End every server's process; nothing is left behind."""
        await self.servers.stop()
        await self._ends.close()

    async def settle(self) -> None:
        """Before any call: what an earlier life begun and did not end is unknown, once; and what this one could not
        write yet is written. Raises Refused while the clock is behind; then nobody calls either.
        """
        if self._settled:
            return await self._ends.flush()
        if count := await self.turn.take(self._settle, self.clock()):
            log.error("calls whose outcome nobody knows", extra={"count": count, "hint": "lever receipt list"})

    def _settle(self, book: Book, now: Instant) -> Decision[int]:
        """Known to be done from the decision on: a second one would settle what this life began."""
        self._settled = True
        return closing.settle(book, now, started=self.started)

    async def lapse(self) -> tuple[Cn, ...]:
        """Close what time has closed; the agents whose requests ended."""
        decide = partial(closing.lapse, elapsed_s=self.elapsed_s(), waited_s=self.waited_s())
        ended = await self.turn.take(decide, self.clock())
        return tuple(Cn(cn) for cn in ended)

    async def listing(self, server: str) -> Listing:
        """What a server defines now, to a connection of the broker's own; what of it is not as accepted is shut.
        Raises Unavailable, Malformed, Refused."""
        if server not in self.names:
            raise Malformed("server", f"no server {server} is configured; there are: {', '.join(self.names) or 'none'}")
        now = self.boottime()
        look = await self.servers.look(None, server, now, now)
        await self._compare(server, look)
        return look.listing

    async def _decided(self, caller: Caller, call: Call, call_id: str) -> Result | ConsentRequired:
        """On what the process defines that would carry it out. For what is refused anyway none is started."""
        answer = await self._judged(caller, call, call_id, after_look=False)
        if isinstance(answer, LookFirst):
            await self._look(caller, call.tool.partition(".")[0])
            answer = await self._judged(caller, call, call_id, after_look=True)
        assert not isinstance(answer, LookFirst)
        return answer

    async def _judged(
        self, caller: Caller, call: Call, call_id: str, *, after_look: bool
    ) -> Result | ConsentRequired | LookFirst:
        standing = await self.standing()
        seen = self._seen(caller, call.tool)
        resolved, looked = (seen, True) if seen else self._assumed(call.tool, after_look)
        ids = Ids(self.draw(), self.draw(), self.draw())
        spans = self.elapsed_s(), self.waited_s()
        passing = Passing(caller, call, call_id, resolved, standing, ids, *spans, looked)
        return await self._apart(self._passed(caller, passing))

    def _seen(self, caller: Caller, tool: str) -> PinnedTool | Unresolved | None:
        """The tool as this agent's own process of the server defines it; None where the last look does not count: not
        every server says when its tools change."""
        server, _, name = tool.partition(".")
        look = self.servers.looked(_holder(caller), server)
        if look is None or self.boottime() - look.at >= LOOK_S:
            return None
        return look.listing.tools.get(name, Unresolved.TOOL_CHANGED)

    def _assumed(self, tool: str, after_look: bool) -> tuple[PinnedTool | Unresolved, bool]:
        """Before a look: as it was accepted. After one, where the server was not to be heard: nothing."""
        server, _, name = tool.partition(".")
        if (accepted := self.turn.book.ledger.tool(server, name)) is None:
            return Unresolved.UNKNOWN_TOOL, True
        return (Unresolved.SERVER_UNAVAILABLE, True) if after_look else (accepted, False)

    async def _look(self, caller: Caller, server: str) -> None:
        now = self.boottime()
        try:
            look = await self.servers.look(_holder(caller), server, now, now - LOOK_S)
        except (Unavailable, Malformed) as error:
            log.warning("a server's tools can't be read", extra={"server": server, "why": str(error)})
            return
        await self._compare(server, look)

    async def _compare(self, server: str, look: Look) -> None:
        """Shut what is not as it was accepted. Raises Refused."""
        seen = tuple(look.listing.tools.values())
        for name in await self.turn.take(partial(orders.see_tools, server=server, seen=seen), self.clock()):
            extra = {"tool": f"{server}.{name}", "hint": "lever tools list"}
            log.warning("a tool is not what was accepted", extra=extra)

    async def _apart(self, work: Coroutine[Any, Any, T]) -> T:
        """In a task of the daemon's own: who asked may leave at any moment, and what was claimed still has its end."""
        task = asyncio.ensure_future(work)
        self.spawn(_waited(task))
        return await asyncio.shield(task)

    async def _passed(self, caller: Caller, passing: Passing) -> Result | ConsentRequired | LookFirst:
        match await self.turn.take(partial(passage.pass_on, passing=passing), self.clock()):
            case Claimed() as claimed:
                return await self._execute(caller, claimed)
            case Repeated(claim):
                return await self._of_claim(claim)
            case ConsentRequired() | LookFirst() as lacking:
                return lacking

    async def _execute(self, caller: Caller, claimed: Claimed) -> Result:
        """Once. Whatever happens, an end is written before the answer leaves; as long as it can't be, so it is said."""
        outcome, answer = await self._sent(caller, claimed)
        try:
            await self._ends.write(claimed.claim, outcome, answer)
        except Refused as refused:
            log.error("a call's end waits for the clock", extra={"claim": claimed.claim, "why": str(refused)})
            return tool_results.refused("in_progress", _UNWRITTEN)
        return tool_results.of(outcome, answer)

    async def _sent(self, caller: Caller, claimed: Claimed) -> tuple[str, bytes]:
        try:
            result = await self.servers.call(_holder(caller), claimed.tool, claimed.arguments, MAX_CALL_S)
        except NotSent as error:  # whose words may name the operator's own files
            log.warning("a call was not sent", extra={"claim": claimed.claim, "why": error.what})
            return "not_dispatched", tool_results.words("the tool's server can't be reached for now; nothing was sent")
        except Unknown as error:
            return "outcome_unknown", tool_results.words(error.why)
        except Exception:
            log.exception("a call ended in a fault of the gateway", extra={"claim": claimed.claim})
            return "outcome_unknown", tool_results.words("the gateway failed")
        match result:
            case Done(raw):
                return "done", raw
            case Failed(raw, is_result):
                return "failed", raw if is_result else tool_results.words(json.loads(raw).get("message", "error"))

    async def _own(self, caller: Caller, call: own_tools.Call, wait_s: float) -> Result:
        match call:
            case own_tools.LeaseRequest(account, minutes):
                ids = Ids(self.draw(), self.draw(), self.draw())
                seconds = minutes * 60 if minutes else None
                decide = partial(leases.ask, caller=caller, account=account, ids=ids, seconds=seconds)
                answer = await self.turn.take(decide, self.clock())
                id = answer.request.request
                terms = own_calls.shortened(self.turn.book, answer.request)
                if await self._settled_within(caller, id, wait_s):
                    result = await self._own(caller, own_tools.RequestStatus(id), 0)
                    terms |= own_calls.opened(self.turn.book, id)
                else:
                    result = tool_results.consent_required(answer.request, answer.other_arguments)
                return tool_results.with_more(result, terms if minutes is not None else {})
            case own_tools.LeaseRelease(account):
                decide_release = partial(own_calls.release, caller=caller, account=account)
                closed = await self.turn.take(decide_release, self.clock())
                return tool_results.said({"account": account, "closed": closed})
            case own_tools.RequestStatus(id):
                await self.settle()  # what a call came to may wait to be written
                found = await self.turn.take(partial(own_calls.status, caller=caller, id=id), self.clock())
                return await self._of_claim(found) if isinstance(found, Claim) else found

    async def _settled_within(self, caller: Caller, id: str, wait_s: float) -> bool:
        """Wait so long for the operator; True where there is an answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            mark = self.wakes.mark(caller.cn)
            request = self.turn.book.ledger.requests.get(id)
            if request is None or request.state is not RequestState.PENDING:
                return True
            if (left_s := deadline - loop.time()) <= 0:
                return False
            await self.wakes.wait(caller.cn, left_s, mark)

    async def _of_claim(self, claim: Claim) -> Result:
        if not claim.outcome:
            return tool_results.refused("in_progress", "this call is running: ask again with the same call_id")
        there = claim.answer_refs and self.turn.book.kept(claim.answer_refs)
        answer = await asyncio.to_thread(self.read, claim.answer_refs[0]) if there else b""
        return tool_results.of(claim.outcome, answer, anew=claim.tool_class == "read")


async def _waited(task: asyncio.Task[Any]) -> None:
    try:
        await asyncio.shield(task)
    except Fatal as error:
        log.error("a call's end was not written", extra={"why": str(error)})
    except BrokerError:  # told to whoever asked
        return


def _read(reason: Reason, parse: Callable[[], T]) -> T:
    """Of what an agent wrote: here alone it is its own fault that it can't be read. Raises Refused."""
    try:
        return parse()
    except Malformed as error:
        raise Refused(reason, str(error)) from error


def _holder(caller: Caller) -> Holder:
    return Holder(caller.cn, caller.generation)


def fresh_name() -> str:
    """A random name that nobody can guess."""
    return secrets.token_hex(16)


def boottime() -> float:
    """Seconds of a clock that a suspended machine does not stop, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def gateway_of(
    config: Config,
    turn: Turn,
    read: Callable[[PayloadRef], bytes],
    started: BrokerStarted,
    standing: Callable[[], Awaitable[Standing]],
    wakes: Wakes,
    spawn: Callable[[Coroutine[Any, Any, Any]], object],
) -> Gateway:
    """As the configuration says."""
    gateway = Gateway(
        turn, read, started, NoServers(), tuple(config.servers), clock, boottime, fresh_name, standing, wakes, spawn
    )
    if config.servers:
        from broker.effects.tool_servers.pool import ToolServers

        gateway.servers = ToolServers(
            config.servers,
            folder=config.folder,
            environ=os.environ,
            hidden=config.own_files,
            steady=steady,
            chance=random.random,
        )
    return gateway
