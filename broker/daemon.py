"""The daemon: the only place that builds things and joins them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop
from pythonjsonlogger.json import JsonFormatter

from broker import restart
from broker.clocks import clock, steady
from broker.config import Config, ToCommand, load
from broker.doors.admin import AdminRoutes, Bundle, Watchers, health_route
from broker.doors.agent import AgentDoor, Rates
from broker.doors.authority import MAX_MESSAGE_BYTES, AuthorityRoutes
from broker.doors.http import App
from broker.doors.listen import Door, Limits, allow_descriptors
from broker.doors.mcp import McpRoute
from broker.doors.operator import Desk, DirectiveRoutes
from broker.doors.socket import bind_operator_socket, bind_tcp
from broker.doors.tools import ToolRoutes
from broker.effects.channels import Channel, CommandChannel, InboxChannel
from broker.effects.commands import environment_of
from broker.effects.head_keeper import HeadKeeper
from broker.effects.notify import Notifier
from broker.effects.outbox import Outbox, Ways
from broker.effects.schedule import LoopScheduler
from broker.errors import BrokerError, Fatal, Refused
from broker.gateway import ANSWERS, Gateway, fresh_name, gateway_of
from broker.journal.disk import RealDisk
from broker.journal.recovery import Recovered
from broker.journal.state import StateFolder
from broker.journal.writer import JournalWriter
from broker.rules import consume as rules
from broker.rules.admit import Terms
from broker.rules.authority import settled
from broker.rules.book import Book
from broker.rules.rates import TokenBucket
from broker.rules.sweep import sweep
from broker.trust.agents import AgentTrust
from broker.trust.authority import CertificateAuthority
from broker.trust.operator import OperatorTrust
from broker.trust.tls import ServerCertificate, server_context
from broker.turn import Notes, Turn
from broker.upholding import Upholding
from broker.upkeep import Upkeep, fetched, keeper_of
from broker.wire.head import Head
from broker.wire.names import Cn, Digest, Instant
from broker.wire.records import (
    AgentEnrolled,
    AgentFrozen,
    AgentPaused,
    AgentResumed,
    AgentRevoked,
    BrokerStarted,
    BrokerStopped,
    Fact,
    Record,
    SignersChanged,
)
from broker.wire.times import show
from broker.wire.verified import Standing

GRACE_S = 5.0
_TIDY_EVERY = 10
UNKNOWN_LOSS = 1_000_000  # records; generations go on beyond what so many may have given
_OF_STANDING = (AgentRevoked, AgentFrozen, AgentEnrolled, AgentPaused, AgentResumed)
log = logging.getLogger("lever.daemon")


def serve(config_file: Path, *, accept_clock: bool = False, restored: bool = False) -> int:
    """Run the broker of this configuration until it is told to stop; its exit status, 0 after a clean shutdown.

    accept_clock: go on with a clock that is behind the journal; restored: with a state folder that is older than what
    was written. Raises BrokerError when it can't start.
    """
    config = load(config_file)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)  # a library's warning may quote what a caller sent: it has to be one line of the log
    allow_descriptors(config.limits.max_connections + 1024)
    notifier = Notifier.take(os.environ, os.getpid())
    return uvloop.run(_run(config, notifier, How(accept_clock, restored)))


@dataclass(frozen=True, slots=True)
class How:
    """What the operator said of this start."""

    accept_clock: bool = False
    restored: bool = False


async def _run(config: Config, notifier: Notifier, how: How) -> int:
    with StateFolder.open(config.state, config.instance) as folder:
        disk, ca = RealDisk(), CertificateAuthority.load(folder.ca, config.instance)
        keeper = keeper_of(config, ca)
        kept = await fetched(keeper) if keeper else None
        at = clock() if how.accept_clock else None
        book, recovered = restart.read(folder, disk, accept_clock_at=at, elsewhere=None if how.restored else kept)
        broker = Broker(config, folder, recovered, book, ca, keeper)
        try:
            await broker.start(disk, how, kept)
            notifier.ready(broker.serving)
            print(broker.serving, file=sys.stderr, flush=True)
            beats = asyncio.create_task(notifier.beat())
            status = await broker.until_stopped()
            beats.cancel()
            notifier.stopping()
        finally:
            await broker.stop()
        return 1 if broker.disk_failed else status


@dataclass(slots=True)
class Broker:
    """One instance, running. `start` opens the doors, `stop` shuts them in the right order."""

    config: Config
    folder: StateFolder
    recovered: Recovered
    book: Book
    ca: CertificateAuthority
    keeper: HeadKeeper | None = None
    serving: str = ""
    disk_failed: bool = False
    _status: asyncio.Future[int] = field(init=False)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _doors: list[Door] = field(default_factory=list)
    _inbox: InboxChannel = field(default_factory=InboxChannel)
    _watchers: Watchers = field(default_factory=Watchers)
    _journal: JournalWriter = field(init=False)
    _turn: Turn = field(init=False)
    _notes: Notes = field(init=False)
    _outbox: Outbox = field(init=False)
    _trust: OperatorTrust | None = None
    _context: Any = None
    _certificate: ServerCertificate = field(init=False)
    _mcp: McpRoute | None = None
    _upkeep: Upkeep | None = None
    _gateway: Gateway = field(init=False)
    _standing: Callable[[], Awaitable[Standing]] = field(init=False)

    async def start(self, disk: RealDisk, how: How = How(), kept: Head | None = None) -> None:
        """Everything up to both doors answering. Raises BrokerError."""
        self._status = asyncio.get_running_loop().create_future()
        config = self.config
        # Before there is a second thread: the operator socket is bound under a umask of the whole process.
        listeners = bind_tcp(self.config.listen.host, self.config.listen.port)
        operator_socket = bind_operator_socket(self.config.socket)
        self._journal = JournalWriter(
            self.folder, disk, self.recovered, on_durable=self._durable, on_stopped=self._disk_failed
        )
        self._turn = Turn(self.book, self._journal)
        self._notes = Notes(self._turn)
        self._outbox = self._build_outbox()
        if how.accept_clock and not await self._turn.accept_clock(clock()):
            log.warning("the clock is not behind the journal: nothing was to be accepted")
        if how.restored:
            await self._restore(kept)
        if operator := self.config.operator:
            signers, seen = operator.allowed_signers, self.book.allowed_digest
            self._trust = OperatorTrust(signers, config.instance, on_change=self._signers_changed, seen=seen)
        self._standing = Upholding(self._turn, clock, self._trust).standing
        started = BrokerStarted(version("lever-broker"), self.recovered.cut_bytes)
        self._gateway = gateway_of(
            config, self._turn, self.recovered.read_payload, started, self._standing, self._inbox, self._spawn
        )
        try:
            await self._gateway.settle()
        except Refused as refused:  # the clock is behind: it is done before the first call
            log.error("nothing is decided", extra={"why": str(refused), "hint": refused.hint})
        port = listeners[0].getsockname()[1]
        await self._open_agent_door(listeners)
        await self._open_operator_door(operator_socket, port)
        self._outbox.resume(self.book.directives.values(), settled.untold(self.book, clock()))
        self._spawn(self._ticks())
        self._upkeep = Upkeep.of(config, self.folder, disk, self._turn, self._journal, clock, self.keeper)
        self._upkeep.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._end, 0)
        agents_at, operator_at = f"{config.listen.host}:{port}", config.socket
        self.serving = f"lever: {config.instance} serving agents on {agents_at}, the operator on {operator_at}"

    async def until_stopped(self) -> int:
        """The exit status, once a signal or a failed disk ends it."""
        return await self._status

    async def stop(self) -> None:
        """Accept nothing more, finish what was accepted, write it down, leave."""
        for task in self._tasks:
            task.cancel()
        self._watchers.close()
        for door in self._doors:
            await door.close(GRACE_S)
        if self._mcp:
            await self._mcp.close()
        if hasattr(self, "_gateway"):
            await self._gateway.stop()
        if hasattr(self, "_outbox"):
            await self._outbox.stop()
        self._inbox.close()
        if self._trust:
            await self._trust.close()
        if hasattr(self, "_journal"):
            try:
                await self._turn.tidy(clock(), everything=True)
                await self._note(BrokerStopped())
            except BrokerError as error:
                log.error("the last counts are not written", extra={"why": str(error)})
            if self._notes.waiting:
                log.error("never written", extra={"facts": [str(fact) for fact in self._notes.waiting]})
            await self._journal.close()
        if self._upkeep:
            await self._upkeep.stop()
        if self._doors:
            self.config.socket.unlink(missing_ok=True)

    async def _restore(self, kept: Head | None) -> None:
        """Written, and kept elsewhere, before anybody may act on it."""
        behind = kept.seq - self.recovered.next_seq + 1 if kept else 0
        await self._turn.restore(clock(), behind if behind > 0 else UNKNOWN_LOSS)
        if self.keeper:
            await self.keeper.keep(self._journal.head)

    # --- joins ----------------------------------------------------------------------------------------------------

    def _durable(self, records: tuple[Record, ...]) -> None:
        self._outbox.hear(records, settled.by(self.book, records))
        self._watchers.tell(records)
        changed = [r.fact.cn for r in records if isinstance(r.fact, _OF_STANDING)]
        answers = [r.fact for r in records if isinstance(r.fact, ANSWERS)]
        for cn in [*changed, *(self._gateway.heard(answers) if answers else ())]:
            self._inbox.wake(cn)
        for fact in (r.fact for r in records if isinstance(r.fact, AgentFrozen)):
            words = {"agent": fact.cn, "generation": fact.generation, "hint": f"lever agent invite {fact.cn}"}
            log.critical("ALARM identity_copied: one certificate was renewed with two keys; frozen", extra=words)
        if changed:
            self._gateway.retire()
            for door in self._doors:
                door.review()

    def _disk_failed(self, why: Fatal) -> None:
        self.disk_failed = True
        log.critical("stopping: the disk's state is unknown", extra={"why": why.why, "hint": why.hint})
        self._end(1)

    def _end(self, status: int) -> None:
        if not self._status.done():
            self._status.set_result(status)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _note(self, fact: Fact) -> None:
        try:
            await self._notes.write(clock(), fact)
        except Refused as refused:
            log.error("nothing is decided", extra={"why": str(refused), "hint": refused.hint})

    def _signers_changed(self, digest: Digest, fingerprints: tuple[str, ...]) -> None:
        log.info("allowed_signers has new content", extra={"keys": fingerprints})
        self._spawn(self._note(SignersChanged(digest, fingerprints)))

    def _build_outbox(self) -> Outbox:
        limits = self.config.limits

        def channels(cn: Cn) -> list[Channel]:
            return [self._channel(how) for how in self.config.deliver_to(cn)]

        ways = Ways(
            channels=channels,
            still_open=partial(rules.open_for_pointer, self.book),
            paused=lambda cn: cn in self.book.paused or bool(self.book.ledger.stopped_at),
            take=lambda decide: self._turn.take(decide, clock()),
            scheduler=LoopScheduler(clock),
            chance=random.random,
        )
        return Outbox(ways, _per(limits.pointers_per_minute, 60), limits.pointers_in_parallel)

    def _channel(self, how: object) -> Channel:
        if not isinstance(how, ToCommand):
            return self._inbox
        timeout_s, folder = self.config.limits.pointer_timeout_s, self.config.folder
        return CommandChannel(how.argv, timeout_s, folder=folder, environment=environment_of(os.environ))

    async def _open_agent_door(self, sockets: list[Any]) -> None:
        limits, host = self.config.limits, self.config.reached_at.host
        self._context = server_context(self.ca)
        names = [host, *([] if self.config.listen.everywhere else [self.config.listen.host])]
        self._certificate = ServerCertificate(self.ca, names)
        self._certificate.rotate(self._context, clock())
        door = AgentDoor(
            turn=self._turn,
            clock=clock,
            steady=steady,
            authority=AgentTrust(self.config.instance, self.ca),
            standing=self._standing,
            repeat_s=limits.consume_repeat_s,
            inbox=self._inbox,
            rates=Rates(
                consume=_per(limits.consume_per_minute, 60),
                call=_per(limits.calls_per_minute, 60),
                inbox=_per(limits.inbox_per_minute, 60),
                renew=_per(limits.renew_per_hour, 3600),
                enrol=_per(limits.enrol_per_minute, 60),
            ),
        )
        tools = ToolRoutes(door, self._gateway)
        self._mcp = McpRoute(door, tools, version("lever-broker"))
        await self._open(
            Door(
                "agent",
                App([*door.routes(), *tools.routes(), *self._mcp.routes()], names),
                sockets,
                self._context,
                Limits(
                    max_connections=limits.max_connections,
                    max_connections_per_agent=limits.max_connections_per_agent,
                ),
                door.stands,
            )
        )

    async def _open_operator_door(self, listener: Any, port: int) -> None:
        config, operator = self.config, self.config.operator
        routes = [health_route(self._turn, clock, self._health)]
        if operator and self._trust:
            desk = Desk(self._turn, clock, self._trust.verify)
            terms = Terms(
                config.instance, operator.directive_expiry_max_s, config.limits.max_active_per_agent, config.declares
            )
            reached = config.reached_at
            url = f"https://{reached if reached.port else type(reached)(reached.host, port)}"
            routes += [
                *DirectiveRoutes(desk, terms, self._outbox.first_attempt, self._diagnose).routes(),
                *AdminRoutes(desk, Bundle(self.ca.pem, url, config.limits.ticket_s), self._watchers).routes(),
                *AuthorityRoutes(desk, self._gateway, fresh_name).routes(),
            ]
        uids = {os.geteuid(), *(operator.uids if operator else ())}
        app = App(routes, ["operator", "localhost"], uids)
        await self._open(Door("operator", app, [listener], limits=Limits(max_message_bytes=MAX_MESSAGE_BYTES)))

    async def _open(self, door: Door) -> None:
        await door.start()
        self._doors.append(door)

    async def _diagnose(self, now: Instant) -> list[str]:
        if self._trust is None:
            return []
        return [f"{finding.text} (hint: {finding.hint})" for finding in await self._trust.diagnose(now)]

    def _health(self) -> dict[str, Any]:
        return {
            "instance": self.config.instance,
            "config_digest": self.config.digest,
            "version": version("lever-broker"),
            "pid": os.getpid(),
            "at": show(clock()),
            "agent_door": str(self.config.reached_at),
            "records": self.book.records,
            "directives": {"active": len(self.book.directives)},
        }

    async def _ticks(self) -> None:
        """Once a second: what time alone changes. A refusal here (the clock is behind) changes nothing."""
        for tick in itertools.count(1):
            await asyncio.sleep(1)
            try:
                if tick % _TIDY_EVERY == 0:
                    self._journal.keep_head()
                    self._certificate.rotate(self._context, clock())
                    await self._turn.tidy(clock())
                await self._gateway.settle()
                await self._notes.write(clock())
                await self._turn.take(sweep, clock())
                await self._gateway.lapse()
            except BrokerError:
                continue
            except Exception:
                log.exception("a tick failed")


def _per(count: int, seconds: int) -> TokenBucket:
    return TokenBucket(count, count / seconds)
