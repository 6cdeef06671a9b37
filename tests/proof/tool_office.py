"""A counter behind which tools are called: the real gateway, with a real tool server that counts."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from broker.doors.authority import AuthorityRoutes
from broker.doors.http import Response, Route
from broker.doors.tools import ToolRoutes
from broker.effects.channels import InboxChannel
from broker.effects.tool_servers import Holder, Outcome, ToolServers
from broker.gateway import Gateway
from broker.journal import payloads
from broker.rules import admit
from broker.rules.authority import closing, consent, orders
from broker.rules.authority.judgement import Call
from broker.rules.authority.passage import Ids, Passing, pass_on
from broker.wire import accepted, envelope, policy
from broker.wire.catalogue import PinnedTool
from broker.wire.envelope import Envelope
from broker.wire.names import Instant
from broker.wire.records import BrokerStarted
from broker.wire.statement import Action, Approval, BoundAction, LeaseAction
from broker.wire.times import SECOND
from tests.proof import tool_desk
from tests.proof.cast import BOTH, DEMO, TERMS, A, caller, operator, order, signed_statement
from tests.proof.counter import Counter, pair, standing
from tests.proof.life import Life
from tests.proof.scenario import Story
from tests.tool_servers.setting import AServer


class Sending(ToolServers):
    """The tool servers, and a word before each call that is to be sent. folder: where the server counts."""

    def __init__(self, folder: Path) -> None:
        servers = {tool_desk.SERVER: AServer(command=tuple(tool_desk.command(folder)))}
        still = Instant(0)
        super().__init__(
            servers, folder=folder, environ=os.environ, hidden=(), steady=lambda: still, chance=lambda: 0.0
        )
        self.folder = folder
        self.before_call: Callable[[], object] = lambda: None

    async def call(self, holder: Holder, tool: PinnedTool, arguments: bytes, timeout_s: float) -> Outcome:
        self.before_call()
        return await super().call(holder, tool, arguments, timeout_s)


async def defined(folder: Path) -> bytes:
    """What an operator accepts of the server."""
    servers = Sending(folder)
    look = await servers.look(None, tool_desk.SERVER, 0, -1)
    await servers.stop()
    return accepted.encode(tool_desk.SERVER, look.listing.tools.values())


@dataclass
class Office(Counter):
    """word: of its calls; tools: what the operator accepts; began: when orders were signed; waiting: what there is to
    sign for the request that waits."""

    servers: Sending
    word: str
    tools: bytes
    began: Instant
    waiting: Approval | None = None
    gateway: Gateway = field(init=False)
    _tasks: set[asyncio.Future[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        names = (f"{self.word}-{self.story.session}-{number}" for number in count(1))
        read = partial(payloads.read_payload, self.life.disk, self.life.folder.path)
        self.gateway = Gateway(
            self.life.turn, read, BrokerStarted("0", 0), self.servers, (tool_desk.SERVER,), self.clock,
            boottime=lambda: self.story.at / SECOND, draw=partial(next, names), standing=standing,
            wakes=InboxChannel(), spawn=self._spawn,
        )  # fmt: skip

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> object:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        return task

    async def quiet(self) -> None:
        """Whatever goes on without its caller has come to its end, and all is written."""
        await asyncio.gather(*self._tasks)
        await self.life.journal.durable()

    def routes(self) -> list[Route]:
        authority = AuthorityRoutes(self.desk, self.gateway, self.gateway.draw)
        return [*super().routes(), *ToolRoutes(self.agent, self.gateway).routes(), *authority.routes()]

    # --- what is asked here

    def call(self, tool: str, **more: str) -> Coroutine[Any, Any, Response]:
        """The agent's one call of this tool in this office."""
        return self.own(f"{tool_desk.SERVER}__{tool}", tool_desk.arguments(self.word), **more)

    def own(self, name: str, arguments: dict[str, str], **more: str) -> Coroutine[Any, Any, Response]:
        return self.post("/tools/call", name=name, arguments=arguments, **more)

    def signed(self, op: str, attached: bytes = b"", **params: str) -> Coroutine[Any, Any, Response]:
        """An order in the same bytes each time, as whoever sends it again has it."""
        digest = {"digest": sha256(attached).hexdigest()} if attached else {}
        raw = envelope.encode(Envelope(DEMO, op, params | digest | {"nonce": op}, self.began))
        more = {"attachment": base64.b64encode(attached).decode()} if attached else {}
        return self.post(f"/admin/{op}", **pair("envelope", raw), **more)

    def says(self, id: str, action: Action) -> Coroutine[Any, Any, Response]:
        """A statement, in the same bytes each time."""
        return self.post("/directive/send", **pair("statement", signed_statement(id, self.began, action=action)[0].raw))

    @property
    def write(self) -> BoundAction:
        """A call that the operator begins."""
        return BoundAction("tool_call", tool_desk.SERVER, "write", {"word": self.word})

    @property
    def request(self) -> str:
        """What waits for the operator."""
        assert self.waiting
        return self.waiting.request_id

    def approves(self) -> Coroutine[Any, Any, Response]:
        assert self.waiting
        return self.says("act-1", self.waiting)

    def reached(self) -> int:
        """How many calls of this office the server has counted."""
        return sum(word == self.word for _, word, _ in tool_desk.executions(self.servers.folder))

    # --- what happened before

    async def take(self, op: str, rule: Callable[..., Any], **params: Any) -> None:
        """An order of the operator's, carried out."""
        await self.story.take(op, partial(rule, order=order(op, self.story.at, str(self.story.at)), **params))

    async def looked(self) -> None:
        """The agent's process of the server runs already."""
        assert word_of(await self.own(f"{tool_desk.SERVER}__look", tool_desk.arguments("before"))) == ""

    async def asks(self, tool: str = "write") -> None:
        """A call of the agent's waits for the operator."""
        assert word_of(await self.call(tool)) == "consent_required"
        (one,) = self.life.turn.book.ledger.requests.values()
        server, _, tool = one.tool.partition(".")
        digests = one.args_digest, one.tool_digest
        self.waiting = Approval(one.request, server, tool, one.account, one.resources, *digests)

    async def approved(self) -> None:
        """And the operator has signed it."""
        await self.asks()
        assert self.waiting
        await self._granted("act-1", self.waiting)

    async def held(self) -> None:
        """The operator has signed a write before anybody asked for it."""
        verified, said = signed_statement("held", self.story.at, action=self.write)
        admitting = partial(admit.admit, request=operator("send"), verified=verified, statement=said, terms=TERMS)
        assert isinstance(await self.story.take("held", admitting), admit.Admitted)

    async def leased(self) -> None:
        """A read has asked, and two are open."""
        await self.asks("read")
        await self._granted("lease-1", LeaseAction("mail", 90, 2, self.request))

    async def _granted(self, id: str, action: Action) -> None:
        verified, said = signed_statement(id, self.story.at, action=action)
        asked = operator("send", id)
        grant = partial(consent.grant, request=asked, verified=verified, statement=said, terms=TERMS)
        assert isinstance(await self.story.take(id, grant), consent.Granted)

    async def unknown(self) -> None:
        """A call was made, and nobody knows what came of it."""
        tool = self.life.turn.book.ledger.tool(tool_desk.SERVER, "look")
        assert tool
        call = Call(A, tool.qualified, {"word": "long ago"})
        passing = Passing(caller(A, 1), call, "", tool, BOTH, Ids("claim-1", "request-1", "run-2"), {})
        await self.story.take("call", partial(pass_on, passing=passing))
        end = partial(closing.end, claim="claim-1", outcome="outcome_unknown", answer=b"")
        await self.story.take("end", end)

    async def stopped(self) -> None:
        """Everything stands still."""
        await self.story.take("stop", partial(orders.stop_all, request=operator("stop")))


@asynccontextmanager
async def office(life: Life, servers: Sending, tools: bytes, word: str) -> AsyncIterator[Office]:
    """An agent in a run that the operator has begun, under a policy, with tools. life: of an empty journal."""
    story = Story(life)
    async with life.session(story.at):
        await story.invite(A, "ticket")
        await story.enrol(A, "ticket", "key", generation=1)
        made = Office(life, story, servers, word, tools, story.at)
        raw = policy.encode(policy.of(tool_desk.POLICY))
        await made.take("policy_apply", orders.apply_policy, scope="instance", raw=raw)
        await made.take("tools_accept", orders.accept_tools, raw=tools)
        await made.take("run_new", orders.new_run, cn=A, run="run-1")
        await made.gateway.settle()
        yield made


def word_of(answer: Response) -> str:
    """Why not; empty where it was done."""
    said = json.loads(answer.body)
    if answer.status != 200:
        return str(said.get("reason", said["error"]))
    return str(said["structuredContent"]["code"]) if said.get("isError") else ""
