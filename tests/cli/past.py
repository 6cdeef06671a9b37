"""A journal of calls that an operator allowed, with real signatures, written as a broker would: true, or with a lie in
it. The state folder is an instance's own, made by `lever init`."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from broker.journal import payloads
from broker.journal.disk import RealDisk
from broker.journal.state import StateFolder
from broker.wire import accepted, envelope, frozen, statement
from broker.wire.act_records import (
    ActGranted,
    CallClaimed,
    CallEnded,
    LeaseOpened,
    OutcomeNoted,
    PolicyApplied,
    RequestOpened,
    RunStarted,
    ToolsAccepted,
)
from broker.wire.catalogue import PinnedTool
from broker.wire.envelope import Envelope
from broker.wire.names import (
    NAMESPACE_ADMIN,
    NAMESPACE_DIRECTIVE,
    Cn,
    Digest,
    DirectiveId,
    Fingerprint,
    Generation,
    Instance,
    Instant,
)
from broker.wire.records import Draft, EnvelopeAccepted, Fact, PayloadsDropped
from broker.wire.statement import Approval, LeaseAction, Statement, Target
from broker.wire.times import SECOND
from tests.cli.said import a_definition, a_policy, pin
from tests.journal import setting
from tests.rig import sign

AT = Instant(1_800_000_000 * SECOND)
WHO = (Cn("worker-a"), Generation(3))
ANY = Digest(bytes(32 * [7]))
READ, SEARCH, WRITE = TOOLS = tuple(pin(a_definition(name)) for name in ("read", "search", "write"))
POLICY = a_policy(
    tool_allowlist={"allowed": ["files.read", "files.search", "files.write"], "approval_required": [], "denied": []},
    tools={
        "files.read": {"class": "read"},
        "files.search": {"class": "read", "account": "mail", "rules": [{"pointer": "/path", "equals": "a.txt"}]},
        "files.write": {"class": "mutation", "resources": [{"pointer": "/path", "kind": "id"}]},
    },
)
"""By which each tool here needs another consent: nothing, a lease, a signed act."""
Entry = tuple[float, list[Draft]]


def at(seconds: float) -> Instant:
    return Instant(AT + int(seconds * SECOND))


def with_fact(draft: Draft, **changes: Any) -> Draft:
    """The same record, but for these fields."""
    return Draft(replace(draft.fact, **changes), draft.payloads)  # type: ignore[type-var]


@dataclass
class Past:
    """What happened, a list of drafts a moment. key: whose signatures stand in it."""

    instance: Path
    key: Path
    entries: list[Entry] = field(default_factory=list)

    def began(self, policy: Any = POLICY) -> Past:
        """A policy in force, accepted tools and a run."""
        self.then(0, *self.ordered_policy(policy)).then(0.5, *self.accepted(*TOOLS))
        return self.then(1, RunStarted("run-1", *WHO, "call"))

    def ordered_policy(self, policy: Any) -> tuple[Draft, Draft]:
        """A policy for the instance, and the envelope that puts it in force."""
        applied = Draft(PolicyApplied("instance", policy.digest, self.fingerprint), (policy.raw,))
        return self.ordered("policy_apply", scope="instance", digest=policy.digest.hex()), applied

    def accepted(self, *tools: PinnedTool) -> tuple[Draft, Draft]:
        """Tools of one server, and the envelope by which they were accepted."""
        raw = accepted.encode("files", tools)
        fact = ToolsAccepted("files", tuple(tool.name for tool in tools), self.fingerprint)
        return self.ordered("tools_accept", digest=sha256(raw).hexdigest()), Draft(fact, (raw,))

    def ordered(self, op: str, **params: str) -> Draft:
        """An envelope of the operator, accepted."""
        raw = envelope.encode(Envelope(Instance("demo"), op, params, AT))
        accepted = EnvelopeAccepted(op, Digest(sha256(raw).digest()), at(120), self.fingerprint)
        return Draft(accepted, (raw, self.signed(NAMESPACE_ADMIN, raw)))

    def signed(self, namespace: str, raw: bytes) -> bytes:
        return sign(self.key, namespace, raw)

    @property
    def fingerprint(self) -> Fingerprint:
        blob = base64.b64decode(self.key.with_name(f"{self.key.name}.pub").read_text().split()[1])
        return Fingerprint("SHA256:" + base64.b64encode(sha256(blob).digest()).decode().rstrip("="))

    def then(self, seconds: float, *facts: Fact | Draft) -> Past:
        self.entries.append((seconds, [one if isinstance(one, Draft) else Draft(one) for one in facts]))
        return self

    def said(self, id: str, action: statement.Action) -> tuple[bytes, bytes]:
        """A statement of the operator and its signature."""
        window = (at(1), at(1), at(600))
        raw = statement.encode(Statement(Instance("demo"), DirectiveId(id), Target(*WHO), *window, action))
        return raw, self.signed(NAMESPACE_DIRECTIVE, raw)

    def asked(self, arguments: Any, resources: tuple[str, ...] = ("id:a.txt",)) -> Draft:
        raw = frozen.freeze(arguments)
        fact = RequestOpened(
            "request-1", *WHO, "run-1", "act", "files.write", "", resources, raw.digest, WRITE.digest,
            (POLICY.digest.hex(),), "a mutation by the table", at(600),
        )  # fmt: skip
        return Draft(fact, (raw.raw,))

    def granted(self, arguments: Any, resources: tuple[str, ...] = ("id:a.txt",), tool: str = "write") -> Draft:
        digest = frozen.freeze(arguments).digest
        action = Approval("request-1", "files", tool, "", resources, digest, WRITE.digest)
        fact = ActGranted(
            "act-1", "request-1", *WHO, "files.write", "", resources, digest, WRITE.digest, at(1), at(600),
            self.fingerprint, ANY, ANY,
        )  # fmt: skip
        return Draft(fact, self.said("act-1", action))

    def lease(self, seconds: int = 60, operations: int = 2) -> Draft:
        fact = LeaseOpened(
            "lease-1",
            "",
            *WHO,
            "run-1",
            "mail",
            seconds,
            operations,
            at(62),
            self.fingerprint,
            ANY,
            ANY,
        )
        return Draft(fact, self.said("lease-1", LeaseAction("mail", 60, 2)))

    @staticmethod
    def claimed(
        consent: str, arguments: Any, claim: str = "claim-1", resources: tuple[str, ...] = ("id:a.txt",)
    ) -> Draft:
        raw = frozen.freeze(arguments)
        tool = {"automatic": READ, "lease": SEARCH, "act": WRITE}[consent.partition("/")[0]]
        read, account = tool is not WRITE, "mail" if tool is SEARCH else ""
        fact = CallClaimed(
            claim, *WHO, "run-1", tool.qualified, "read" if read else "mutation", account, () if read else resources,
            raw.digest, tool.digest, consent, "", (POLICY.digest.hex(),),
        )  # fmt: skip
        return Draft(fact, (raw.raw,))

    @staticmethod
    def ended(outcome: str = "done", claim: str = "claim-1") -> Draft:
        answer = b'{"content":[]}'
        return Draft(CallEnded(claim, outcome, Digest(sha256(answer).digest()), len(answer)), (answer,))

    def noted(self, text: str, claim: str = "claim-1") -> tuple[Draft, Draft]:
        fact = OutcomeNoted(claim, self.fingerprint)
        return self.ordered("outcome_note", claim=claim, note=text), Draft(fact, (text.encode(),))

    def written(self, *, apart: bool = False) -> Path:
        """Append it to the instance's journal; its state folder. apart: each moment in payload segments of its own."""
        asyncio.run(self._write(1 if apart else setting.SEGMENT_BYTES))
        return self.instance / "state"

    def forgotten(self) -> None:
        """The exact bytes are past their retention; but for the newest segment."""
        asyncio.run(self._forget())

    async def _write(self, segment_bytes: int) -> None:
        with StateFolder.open(self.instance / "state", Instance("demo")) as folder:
            async with setting.writing(folder, segment_bytes=segment_bytes) as desk:
                for seconds, drafts in self.entries:
                    desk.writer.append(at(seconds), drafts)
                    await desk.writer.durable()

    async def _forget(self) -> None:
        with StateFolder.open(self.instance / "state", Instance("demo")) as folder:
            through = max(int(one.stem) for one in folder.payloads.iterdir()) - 1
            async with setting.writing(folder) as desk:
                desk.writer.append(at(10_000), [Draft(PayloadsDropped(through))])
                await desk.writer.durable()
            payloads.drop(RealDisk(), folder.path, through)


def an_act(instance: Path, arguments: Any = None, key: Path | None = None, past: Past | None = None) -> Past:
    """One call that was asked for, signed, made and done."""
    given = {"path": "a.txt"} if arguments is None else arguments
    past = (past or Past(instance, key or instance / "keys" / "operator-1")).began()
    past.then(2, past.asked(given)).then(3, past.granted(given))
    return past.then(4, past.claimed("act/act-1", given)).then(5, past.ended())
