"""One instance whose daemon is ended again and again while clients hammer it; then everything is compared."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self

from broker import offline
from broker.wire.record_view import view
from tests.proof import told, tool_desk
from tests.proof.board import AGENTS, CALLING, Boards
from tests.proof.callers import Caller, call_id
from tests.proof.checker import violations
from tests.proof.forge import Forge
from tests.proof.identities import newest
from tests.proof.lines import Lines
from tests.proof.operators import Operator
from tests.proof.processes import Client, Daemon
from tests.proof.signer import Signer
from tests.proof.told import Entry, Execution, History, Restart, Seen, Told, Used

NAME = "proof"
CLIENTS = (  # a line a process: the fewer, the more of the machine is the daemon's
    ("operator/op-1/ant/bee", "operator/op-2/cat/dog"),
    ("consumer/c-1", "consumer/c-2"),
    tuple(f"caller/{who}/{'/'.join(CALLING)}" for who in ("k-1", "k-2")),
)
_CASTS = {  # how many of each are there in a life, and how often: mostly few, for whoever is lost costs as much
    **{(0, 1, 0): 2, (0, 2, 0): 2, (1, 0, 0): 2, (1, 1, 0): 3, (2, 1, 0): 1},
    **{(0, 0, 1): 2, (0, 0, 2): 4, (1, 0, 1): 3, (2, 0, 2): 1},
}
LIMITS = "limits: {consume_per_minute: 1000000, calls_per_minute: 1000000, max_active_per_agent: 1000000}"
_SIGNS = 'operator@{} namespaces="lever-operator-directive@lever.dev,lever-operator-admin@lever.dev" {}\n'
_LISTS = (
    ("list", "/directive/list"),
    ("agent_list", "/admin/agent_list"),
    ("request_list", "/admin/request_list"),
    ("lease_list", "/admin/lease_list"),
    ("health", "/health"),
    ("run_list", "/admin/run_list"),
    ("health", "/health"),
)
_ASKED_AGAIN = 25
_SILENT_AT_MOST = 100  # times 50 ms: every client has been told that the daemon is about to end
_UNPRIVILEGED = range(20000, 32000)  # below the ports that the system gives to clients, ours among them


class Ending(Protocol):
    """How lives end. disk_fails: the daemon may see it coming, and refuse. listed, verified: in what share of lives the
    daemon is asked for its lists, and its journal is verified when it is dead. entry: what its process runs."""

    disk_fails: bool
    entry: str
    listed: float
    verified: float

    def environment(self, scene: Scene) -> Mapping[str, str]:
        """What this life is started with."""

    def early(self, scene: Scene) -> bool:
        """Is this life ended before the daemon has said that it serves?"""

    def calling(self) -> bool:
        """Are there callers in this life, whatever the chance says?"""

    def end(self, scene: Scene, daemon: Daemon) -> str:
        """End it, or see its end; what was wrong about that, or nothing. Afterwards its folder can be read."""


@dataclass(frozen=True)
class Figures:
    """What a run came to."""

    seed: int
    ends: int
    busy: int  # of these ends: somebody waited for an answer, and never had it
    acknowledged: int
    lost: int
    executions: int
    unknown: int
    records: int
    violations: list[str]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.ends} ends survived, {self.busy} with operations in flight, "
            f"{self.acknowledged} operations acknowledged, {self.lost} answers lost, {self.executions} tool calls "
            f"executed, {self.unknown} outcomes unknown, {self.records} records, {len(self.violations)} violations"
        )


@dataclass
class Scene:
    """The instance and its clients. limits: a line of lever.yaml, which is short: a third of a start is to read it."""

    forge: Forge
    folder: Path
    seed: int
    ending: Ending
    limits: str = LIMITS
    restarts: list[Restart] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    cast: tuple[int, ...] = ()
    _answered: int = -1

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.port = _free_port(self.chance)
        self.signer = Signer(NAME, random.Random(f"{self.seed} checker"))
        self.lines = Lines("checker", self.folder, self.port)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def make(self) -> Self:
        """`lever init`, and the agents enrolled before anything is ended."""
        made = self.forge.run(
            "init", ".", "--name", NAME, "--make-keys", "--listen", f"127.0.0.1:{self.port}", cwd=self.folder
        )
        assert made.status == 0, made.stderr
        config = self.folder / "lever.yaml"
        lines = (line for line in config.read_text().splitlines() if line and "#" not in line)
        config.write_text("\n".join([*lines, self.limits, tool_desk.configured(self.folder), ""]))
        (self.folder / "agents").mkdir()
        os.mkfifo(self.folder / tool_desk.ANSWERED)
        self._answered = os.open(self.folder / tool_desk.ANSWERED, os.O_RDWR | os.O_NONBLOCK)
        self.admit(self.signer.key.public_line)
        return self

    def admit(self, public_line: str) -> None:
        """Whoever has this key is an operator."""
        with (self.folder / "allowed_signers").open("a") as file:
            file.write(_SIGNS.format(NAME, public_line))

    def enrol_all(self) -> None:
        boards = Boards(self.folder)
        own = Operator(self.lines, boards, self.chance, self.signer, AGENTS)
        for cn in AGENTS:
            own.enrol(cn)
        boards.close()

    def hammer(self) -> None:
        """From now on clients go on with it at each `up`."""
        for names in CLIENTS:
            words = (str(self.seed), str(self.folder), str(self.port), NAME, *names)
            self.clients.append(client := Client.start(self.forge, words, self.folder))
            self.admit(client.first_line())

    # --- a life -----------------------------------------------------------------------------------------------------

    def start(self) -> Daemon:
        """Without any fault: it must serve."""
        daemon = Daemon.start(self.forge, self.folder)
        assert daemon.serving(), f"seed {self.seed}: no start after {len(self.restarts)} ends: {daemon.said.decode()}"
        return daemon

    def life(self) -> None:
        """Start, perhaps look, let clients at it, end it, perhaps look again."""
        number, seen, began = len(self.restarts), Seen(), time.monotonic()
        daemon = Daemon.start(self.forge, self.folder, self.ending.environment(self), self.ending.entry)
        if not self.ending.early(self) and daemon.serving():
            if self.chance.random() < self.ending.listed:
                seen = self.listed()
            for client, count in zip(self.clients, self._cast(), strict=bool(self.clients)):
                if count:
                    client.up(count)
        if trouble := self.ending.end(self, daemon):
            self.troubles.append(f"life {number}: {trouble}: {daemon.said.decode()[-1500:]}")
        if b"Traceback" in daemon.said:
            self.troubles.append(f"life {number}: a traceback: {daemon.said.decode()[-1500:]}")
        restart = Restart(number, seen=seen, began=began, ended=daemon.ended_at)
        self.restarts.append(self.verified(restart) if self.chance.random() < self.ending.verified else restart)

    def _cast(self) -> tuple[int, ...]:
        """How many of each process of clients are there in this life."""
        casts = {cast: often for cast, often in _CASTS.items() if cast[-1] or not self.ending.calling()}
        (self.cast,) = self.chance.choices([*casts], [*casts.values()])
        return self.cast

    def watch(self, daemon: Daemon, answers: int, of: str = "ock") -> None:
        """Until so many more of these came, and a moment longer; or until the daemon ended by itself.

        of: o, c, k an answer to an operator, a consumer or a caller; x ends it at once: a call is executed.
        """
        ready = select.poll()
        ready.register(self._answered, select.POLLIN)
        with suppress(BlockingIOError):
            os.read(self._answered, 65536)
        silent = 0
        while answers > 0 and daemon.listen(0) and silent < _SILENT_AT_MOST:
            if ready.poll(50):
                came, silent = os.read(self._answered, 65536).decode(), 0
                answers -= answers if "x" in of and "x" in came else sum(map(came.count, of))
            else:
                silent += 1
        daemon.listen(0.01 * self.chance.random())

    def listed(self) -> Seen:
        """What the daemon says of all directives and agents, and of what these may do."""
        began, answers = time.monotonic(), []
        for op, route in _LISTS:
            health = op == "health"
            said = self.lines.ask(op, route) if health else self.lines.operator(op, route, self.signer.envelope(op))
            if not said.done:
                return Seen()
            answers.append(said.answer)
        directives, agents, requests, leases, before, runs, after = answers
        return Seen(
            began,
            {row["id"]: row["state"] for row in directives["directives"]},
            {row["cn"]: (row["generation"], row["state"]) for row in agents["agents"]},
            {row["act"]: row["state"] for row in requests["acts"]},
            tuple(row["lease"] for row in leases["leases"]),
            {row["run"]: _used(row) for row in runs["runs"]},
            (before["records"], after["records"]),
        )

    def verified(self, restart: Restart) -> Restart:
        """With what `lever journal verify` says of what the dead daemon left."""
        done = self.forge.run("journal", "verify", "--state", str(self.state), "--json", cwd=self.folder)
        report: dict[str, Any] = {"records": 0, "head": "", "problems": []}
        if done.stdout:
            report = json.loads(done.stdout)
        problems = [f"{p['kind']} {p['file']} {p['found']}" for p in report["problems"] if p["kind"] != "incomplete"]
        if done.status:
            problems.append(f"status {done.status}: {done.stderr.strip()}")
        return replace(restart, records=report["records"], head=report["head"], problems=tuple(problems))

    # --- the end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Once more, with nobody else about: what is there is asked for by its agent, and calls are made again."""
        began, daemon, seen = time.monotonic(), self.start(), self.listed()
        assert seen.agents, "a daemon that nobody disturbs answers"
        self._fetch(seen)
        self._call_again()
        if status := daemon.end(signal.SIGTERM):
            self.troubles.append(f"a clean stop ended with {status}: {daemon.said[-500:]!r}")
        restart = Restart(len(self.restarts), seen=seen, began=began, ended=daemon.ended_at)
        self.restarts.append(self.verified(restart))

    def _fetch(self, seen: Seen) -> None:
        """All that is active, twice, and some of what has ended."""
        owners = {said.id: (said.about["cn"], said.generation) for said in self.told if said.op == "send"}
        ended = [id for id, state in seen.directives.items() if state != "active"]
        asked = {*seen.directives} - {*ended} | {*self.chance.sample(ended, min(len(ended), _ASKED_AGAIN))}
        for id in sorted(asked):
            state, (cn, generation) = seen.directives[id], owners.get(id, ("", 0))
            identity = newest(self.folder / "agents", cn) if cn else None
            if identity and identity.generation == generation:
                about = {"id": id, "cn": cn, "generation": str(generation), "key": identity.key, "attempt": ""}
                answers = [
                    self.lines.agent("consume", "/directive/consume", {"id": id}, identity.pem, **about).done
                    for _ in range(2 if state == "active" else 1)
                ]
                if answers[0] != (state == "active"):
                    self.troubles.append(f"{id} is {state}, and its agent's consume was answered: {answers}")

    def _call_again(self) -> None:
        """Under their own names, those whose answers were lost among them: what came of them is what they get."""
        boards = Boards(self.folder)
        caller = Caller(self.lines, boards, self.chance, AGENTS)
        calls = (
            said.about | {"": said.generation} for said in self.told if said.op == "call" and said.about["call_id"]
        )
        own = (about for about in calls if about["call_id"] == call_id(about["word"]))
        named = {(about["tool"], about["word"], about["cn"], about[""]) for about in own}
        for tool, word, cn, generation in self.chance.sample(sorted(named), min(len(named), _ASKED_AGAIN)):
            identity = newest(self.folder / "agents", cn)
            if identity and identity.generation == generation:
                caller.call(tool.partition(".")[2], word, identity)
        boards.close()

    def judge(self) -> Figures:
        """Hear the clients, look once more, compare."""
        for client in self.clients:
            self.told += map(told.parse, client.rest())
        lives = list(self.restarts)
        self.settle()
        self.told += self.lines.told
        views = ((record, view(record)) for record in offline.walk_journal(self.state))
        journal = [Entry(record.seq, seen["kind"], record.prev.hex(), seen, record.rest) for record, seen in views]
        executions = [Execution(*line) for line in tool_desk.executions(self.folder)]
        history = History(self.told, self.restarts, journal, self.ending.disk_fails, executions)
        return Figures(
            self.seed,
            len(lives),
            sum(any(said.unsure and said.began <= life.ended <= said.ended for said in self.told) for life in lives),
            sum(said.done for said in self.told),
            sum(said.unsure for said in self.told),
            len(executions),
            sum(entry.fields["outcome"] == "outcome_unknown" for entry in history.entries("call_ended")),
            len(journal),
            self.troubles + violations(history),
        )

    def play(self, ends: int) -> Figures:
        """All of it: the instance, so many ends, the judgement."""
        self.make()
        try:
            daemon = self.start()
            self.enrol_all()
            tool_desk.put_in_force(self.lines, self.signer)
            daemon.end()
            self.hammer()
            for _ in range(ends):
                self.life()
            return self.judge()
        finally:
            self.close()

    def close(self) -> None:
        self.lines.close()
        os.close(self._answered)
        for client in self.clients:
            client.close()


def _used(row: dict[str, Any]) -> Used:
    who = row["agent"]["cn"], row["agent"]["generation"]
    return Used(who, row["used"]["tool_calls"], row["used"]["input_tokens"])


def _free_port(chance: random.Random) -> int:
    while True:
        port = chance.choice(_UNPRIVILEGED)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
