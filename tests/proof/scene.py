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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from broker import offline
from broker.wire.record_view import view
from tests.proof import told
from tests.proof.checker import violations
from tests.proof.forge import Forge
from tests.proof.hammer import AGENTS, Board, Operator
from tests.proof.identities import newest
from tests.proof.lines import Lines
from tests.proof.processes import Client, Daemon
from tests.proof.signer import Signer
from tests.proof.told import Entry, History, Restart, Seen, Told

NAME = "proof"
CLIENTS = (
    ("operator", "op-1", "ant", "bee"),
    ("operator", "op-2", "cat", "dog"),
    ("consumer", "c-1"),
    ("consumer", "c-2"),
)
LIMITS = (
    "limits: {consume_per_minute: 1000000, enrol_per_minute: 1000000, renew_per_hour: 1000000,"
    " pointers_per_minute: 1000000, max_active_per_agent: 1000000}"
)
_SIGNS = 'operator@{} namespaces="lever-operator-directive@lever.dev,lever-operator-admin@lever.dev" {}\n'
_SILENT_AT_MOST = 100  # times 50 ms: every client has been told that the daemon is about to end
_UNPRIVILEGED = range(20000, 32000)  # below the ports that the system gives to clients, ours among them


class Ending(Protocol):
    """How lives end. disk_fails: the daemon may see it coming, and refuse."""

    disk_fails: bool

    def environment(self, scene: Scene) -> Mapping[str, str]:
        """What this life is started with."""

    def early(self, scene: Scene) -> bool:
        """Is this life ended before the daemon has said that it serves?"""

    def end(self, scene: Scene, daemon: Daemon) -> str:
        """End it, or see its end; what was wrong about that, or nothing. Afterwards its folder can be read."""


@dataclass(frozen=True)
class Figures:
    """What a run came to."""

    seed: int
    ends: int
    acknowledged: int
    lost: int
    records: int
    violations: list[str]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.ends} ends survived, {self.acknowledged} operations acknowledged, "
            f"{self.lost} answers lost, {self.records} records, {len(self.violations)} violations"
        )


@dataclass
class Scene:
    """The instance and its clients."""

    forge: Forge
    folder: Path
    seed: int
    ending: Ending
    restarts: list[Restart] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
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
        with (self.folder / "lever.yaml").open("a") as config:
            config.write(f"\n{LIMITS}\n")
        (self.folder / "agents").mkdir()
        os.mkfifo(self.folder / "answered")
        self._answered = os.open(self.folder / "answered", os.O_RDWR | os.O_NONBLOCK)
        self.admit(self.signer.key.public_line)
        return self

    def admit(self, public_line: str) -> None:
        """Whoever has this key is an operator."""
        with (self.folder / "allowed_signers").open("a") as file:
            file.write(_SIGNS.format(NAME, public_line))

    def enrol_all(self) -> None:
        board = Board(self.folder / "board")
        own = Operator(self.lines, board, self.chance, self.signer, AGENTS)
        for cn in AGENTS:
            own.enrol(cn)
        board.close()

    def hammer(self) -> None:
        """From now on clients go on with it at each `up`."""
        for role, who, *own in CLIENTS:
            words = (role, who, str(self.seed), str(self.folder), str(self.port), NAME, *own)
            self.clients.append(client := Client.start(self.forge, words, self.folder))
            self.admit(client.first_line())

    # --- a life -----------------------------------------------------------------------------------------------------

    def start(self) -> Daemon:
        """Without any fault: it must serve."""
        daemon = Daemon.start(self.forge, self.folder)
        assert daemon.serving(), f"seed {self.seed}: no start after {len(self.restarts)} ends: {daemon.said.decode()}"
        return daemon

    def life(self) -> None:
        """Start, look, let the clients at it, end it, look again."""
        number, seen = len(self.restarts), Seen()
        daemon = Daemon.start(self.forge, self.folder, self.ending.environment(self))
        if not self.ending.early(self) and daemon.serving():
            if self.chance.random() < 0.5:
                seen = self.listed()
            for client in self.clients:
                client.up()
        if trouble := self.ending.end(self, daemon):
            self.troubles.append(f"life {number}: {trouble}: {daemon.said.decode()[-1500:]}")
        if b"Traceback" in daemon.said:
            self.troubles.append(f"life {number}: a traceback: {daemon.said.decode()[-1500:]}")
        self.restarts.append(self.verified(number, seen))

    def watch(self, daemon: Daemon, answers: int) -> None:
        """Until the clients had so many answers more, and a moment longer; or until the daemon ended by itself."""
        ready = select.poll()
        ready.register(self._answered, select.POLLIN)
        with suppress(BlockingIOError):
            os.read(self._answered, 65536)
        silent = 0
        while answers > 0 and daemon.listen(0) and silent < _SILENT_AT_MOST:
            if ready.poll(50):
                answers, silent = answers - len(os.read(self._answered, 65536)), 0
            else:
                silent += 1
        daemon.listen(0.01 * self.chance.random())

    def listed(self) -> Seen:
        """What the daemon says of all directives and agents."""
        began = time.monotonic()
        rows = self.lines.operator("list", "/directive/list", self.signer.envelope("list"))
        if not rows.done:
            return Seen()
        agents = self.lines.operator("agent_list", "/admin/agent_list", self.signer.envelope("agent_list"))
        if not agents.done:
            return Seen()
        states = {row["id"]: row["state"] for row in rows.answer["directives"]}
        return Seen(began, states, {a["cn"]: (a["generation"], a["state"]) for a in agents.answer["agents"]})

    def verified(self, life: int, seen: Seen) -> Restart:
        """`lever journal verify` on what the dead daemon left."""
        done = self.forge.run("journal", "verify", "--state", str(self.state), "--json", cwd=self.folder)
        report: dict[str, Any] = {"records": 0, "head": "", "problems": []}
        if done.stdout:
            report = json.loads(done.stdout)
        problems = [f"{p['kind']} {p['file']} {p['found']}" for p in report["problems"] if p["kind"] != "incomplete"]
        if done.status:
            problems.append(f"status {done.status}: {done.stderr.strip()}")
        return Restart(life, report["records"], report["head"], tuple(problems), seen)

    # --- the end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Once more, with nobody else about: all that is listed is asked for by its agent, twice where it is had."""
        daemon, seen = self.start(), self.listed()
        assert seen.agents, "a daemon that nobody disturbs answers"
        owners = {said.id: (said.about["cn"], said.generation) for said in self.told if said.op == "send"}
        for id, state in seen.directives.items():
            cn, generation = owners.get(id, ("", 0))
            identity = newest(self.folder / "agents", cn) if cn else None
            if identity and identity.generation == generation:
                about = {"id": id, "cn": cn, "generation": str(generation), "key": identity.key, "attempt": ""}
                answers = [
                    self.lines.agent("consume", "/directive/consume", {"id": id}, identity.pem, **about).done
                    for _ in range(2 if state == "active" else 1)
                ]
                if answers[0] != (state == "active"):
                    self.troubles.append(f"{id} is {state}, and its agent's consume was answered: {answers}")
        if status := daemon.end(signal.SIGTERM):
            self.troubles.append(f"a clean stop ended with {status}: {daemon.said[-500:]!r}")
        self.restarts.append(self.verified(len(self.restarts), seen))

    def judge(self) -> Figures:
        """Hear the clients, look once more, compare."""
        for client in self.clients:
            self.told += map(told.parse, client.rest())
        ends = len(self.restarts)
        self.settle()
        self.told += self.lines.told
        views = ((record, view(record)) for record in offline.walk_journal(self.state))
        journal = [Entry(record.seq, seen["kind"], record.prev.hex(), seen) for record, seen in views]
        history = History(self.told, self.restarts, journal, self.ending.disk_fails)
        acknowledged, lost = sum(said.done for said in self.told), sum(said.unsure for said in self.told)
        return Figures(self.seed, ends, acknowledged, lost, len(journal), self.troubles + violations(history))

    def play(self, ends: int) -> Figures:
        """All of it: the instance, so many ends, the judgement."""
        self.make()
        try:
            daemon = self.start()
            self.enrol_all()
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


def _free_port(chance: random.Random) -> int:
    while True:
        port = chance.choice(_UNPRIVILEGED)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
