"""Instances for measuring: made by `lever`, then filled with a great many directives straight through the journal room.

Only the filling is short-cut (a signature costs milliseconds): what is measured is always a real daemon.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from broker.journal.disk import RealDisk
from broker.journal.recovery import recover
from broker.journal.state import StateFolder
from broker.journal.writer import JournalWriter
from broker.wire import sshsig, statement
from broker.wire.names import NAMESPACE_DIRECTIVE, Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant
from broker.wire.records import DirectiveAdmitted, DirectiveConsumed, Draft, PointerDelivered
from broker.wire.statement import Instruction
from tests.rig import SECOND, Rig, now, sign

LIMITS = "limits: {consume_per_minute: 6000, enrol_per_minute: 6000, max_active_per_agent: 1000000}"


@dataclass
class Filled:
    """A running instance. identities: by agent name, the file with key and certificate; ids: what each may consume."""

    rig: Rig
    identities: dict[str, str] = field(default_factory=dict)
    ids: dict[str, list[str]] = field(default_factory=dict)

    @property
    def ca(self) -> str:
        return str(self.rig.folder / "ca.pem")

    @property
    def pid(self) -> int:
        assert self.rig.daemon
        return self.rig.daemon.pid

    def take(self, name: str, count: int) -> list[str]:
        """The bodies of the next consumes of this agent."""
        taken, self.ids[name] = self.ids[name][:count], self.ids[name][count:]
        assert len(taken) == count, "the instance was filled with too few"
        return [json.dumps({"id": id}) for id in taken]


def make(folder: Path, agents: int, each: int, *, active: int = 0, consumed: int = 0) -> Filled:
    """agents with `each` directives to consume; `active` and `consumed` more that belong to nobody here."""
    rig = Rig.create(folder, limits=LIMITS).start()
    filled = Filled(rig)
    names = [f"bench-{i}" for i in range(agents)]
    for name in names:
        identity(filled, name)
    rig.enrol("bystander")
    rig.stop()
    asyncio.run(_fill(filled, names, each, active, consumed))
    rig.start()
    return filled


def identity(filled: Filled, name: str) -> None:
    """Enrol an agent, and keep its key and certificate in a file."""
    agent = filled.rig.enrol(name)
    path = filled.rig.folder / f"{name}.pem"
    path.write_text(agent.private_pem() + agent.certificate)
    filled.identities[name] = str(path)
    Path(filled.ca).write_text(filled.rig.ca_pem)


@asynccontextmanager
async def writing(rig: Rig) -> AsyncIterator[JournalWriter]:
    """The journal of an instance that does not run."""
    with StateFolder.open(rig.state, Instance(rig.name)) as folder:
        disk = RealDisk()
        recovered = recover(folder, disk, lambda record: None)
        writer = JournalWriter(
            folder, disk, recovered, on_durable=lambda records: None, on_stopped=lambda why: sys.exit(str(why))
        )
        yield writer
        await writer.close()


async def _fill(filled: Filled, names: list[str], each: int, active: int, consumed: int) -> None:
    rig = filled.rig
    async with writing(rig) as writer:
        seal = Sealer(rig)
        for name in names:
            drafts = [seal.admitted(name) for _ in range(each)]
            filled.ids[name] = [draft.fact.id for draft in drafts]  # type: ignore[union-attr]
            writer.append(now(), [*drafts, *map(told, drafts)])
        for start in range(0, max(active, consumed), 1000):
            drafts = [seal.admitted("bystander") for _ in range(min(1000, max(active, consumed) - start))]
            ends = [seal.consumed(draft) for draft in drafts] if consumed else []
            for pair in zip(drafts, ends, strict=True) if ends else [[*drafts, *map(told, drafts)]]:
                writer.append(now(), pair)
            await writer.durable()


def told(admitted: Draft) -> Draft:
    """The agent knows the id already, so that the daemon has nothing to deliver while it is measured."""
    fact: Any = admitted.fact
    return Draft(PointerDelivered(fact.id, fact.cn, "inbox", 1))


class Sealer:
    """Drafts as the daemon would have made them. One real signature serves all: only its signer is asked about."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        value = rig.statement("bench-0")
        raw = statement.encode(value)
        self.signature = sign(rig.key, NAMESPACE_DIRECTIVE, raw)
        self.first: bytes | None = raw
        self.signer = Digest(sha256(sshsig.parse(self.signature).public_key).digest())
        self.allowed = Digest(sha256(rig.allowed_signers.read_bytes()).digest())
        self.value = value

    def admitted(self, cn: str, *, generation: int = 1, opens_in_s: int = 0, ends_in_s: int = 20 * 3600) -> Draft:
        id, at = DirectiveId(str(uuid.uuid4())), now()
        opens_at, ends_at = Instant(at + opens_in_s * SECOND), Instant(at + ends_in_s * SECOND)
        text = Instruction("Finish the report before you begin with anything else, please.")
        value = self.rig.statement(
            cn, generation, directive_id=id, action=text, not_before=opens_at, expires_at=ends_at
        )
        raw = statement.encode(value)
        if self.first:
            raw, value, id, self.first = self.first, self.value, self.value.directive_id, None
        fact = DirectiveAdmitted(
            id, Cn(cn), Generation(generation), "instruction", "", "", statement.action_digest(value.action), at,
            opens_at, ends_at, Fingerprint("SHA256:bench"), self.signer, self.allowed,
        )  # fmt: skip
        return Draft(fact, (raw, self.signature))

    def consumed(self, draft: Draft) -> Draft:
        fact: Any = draft.fact
        return Draft(DirectiveConsumed(fact.id, fact.cn, fact.generation, Digest(b"k" * 32), ""))


def load(filled: Filled, port: int, clients: list[tuple[str, list[str]]]) -> dict[str, Any]:
    """Run these clients in a process of their own: [(agent, bodies)]."""
    plan = {"clients": [{"identity": filled.identities[name], "bodies": bodies} for name, bodies in clients]}
    return drive(port, filled.ca, plan)


def drive(port: int, ca: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Run `bench.client`; every answer must be good."""
    argv = [sys.executable, "-m", "bench.client", str(port), ca]
    done = subprocess.run(argv, input=json.dumps(plan) + "\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    assert not answer["bad"], f"answers that were not good: {answer['bad']}"
    return answer
