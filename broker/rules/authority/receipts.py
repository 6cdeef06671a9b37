"""Receipts: of each call that was begun, who allowed it, by which exact bytes, and what came of it.

A fold of the journal's records and nothing else; so whoever has the journal can make every receipt again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from broker.rules.authority.scopes import scopes
from broker.wire import names
from broker.wire.act_records import (
    ActEnded,
    ActGranted,
    AllStopped,
    CallClaimed,
    CallEnded,
    LeaseClosed,
    LeaseOpened,
    OutcomeNoted,
    PolicyApplied,
    RequestOpened,
    RunStarted,
    RunStopped,
    StopLifted,
    ToolChanged,
    ToolsAccepted,
)
from broker.wire.names import Digest, Fingerprint, Instant
from broker.wire.records import (
    AgentEnrolled,
    AgentFrozen,
    AgentInvited,
    AgentRevoked,
    BrokerStarted,
    ClockAccepted,
    EnvelopeAccepted,
    JournalRestored,
    PayloadRef,
    PayloadsDropped,
    Record,
)
from broker.wire.times import SECOND

_NOT_SENT = "not_dispatched"


@dataclass(frozen=True, slots=True)
class Signature:
    """Signed bytes and their signature, by reference: whose key, for which namespace, and at what time it counted."""

    raw: PayloadRef
    armored: PayloadRef
    namespace: str
    fingerprint: Fingerprint
    at: Instant


@dataclass(frozen=True, slots=True)
class Applied:
    """A policy that was put in force, and the signed envelope that did it. payloads: its bytes."""

    scope: str
    digest: str
    at: Instant
    payloads: tuple[PayloadRef, ...]
    signature: Signature | None

    @property
    def name(self) -> str:
        """For people."""
        return f"policy {self.digest[:12]}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A server's tools that were accepted at once, and the signed envelope that did it. payloads: their definitions."""

    server: str
    payloads: tuple[PayloadRef, ...]
    signature: Signature | None

    @property
    def name(self) -> str:
        """For people."""
        return f"tools of {self.server}"


@dataclass(slots=True)
class Receipt:
    """One call. accepted: its tool as the operator knew it, None where nobody accepted one of that name; granted: the
    act or the lease that it spent, None where it needed none; noted: the operator's word on what came of it, and by
    what; flaws: what does not fit."""

    claimed: Record
    policies: tuple[Applied, ...]
    accepted: Accepted | None
    granted: Record | None = None
    asked: Record | None = None
    ended: Record | None = None
    noted: Record | None = None
    noted_by: Signature | None = None
    flaws: list[str] = field(default_factory=list)

    @property
    def claim(self) -> CallClaimed:
        """What was begun."""
        assert isinstance(self.claimed.fact, CallClaimed)
        return self.claimed.fact

    @property
    def consent(self) -> tuple[str, str]:
        """Its kind, automatic, lease or act; and the id of the lease or act."""
        kind, _, id = self.claim.consent.partition("/")
        return kind, id

    @property
    def outcome(self) -> str:
        """What came of it; empty while nobody has recorded anything."""
        return self.ended.fact.outcome if self.ended and isinstance(self.ended.fact, CallEnded) else ""

    @property
    def signature(self) -> Signature | None:
        """By what the operator allowed it: the statement of the act or lease."""
        fact = self.granted.fact if self.granted else None
        if self.granted is None or not isinstance(fact, ActGranted | LeaseOpened) or len(self.granted.payloads) != 2:
            return None
        raw, armored = self.granted.payloads
        return Signature(raw, armored, names.NAMESPACE_DIRECTIVE, fact.fingerprint, self.granted.at)


@dataclass(slots=True)
class Receipts:
    """of: by claim, in order; dropped: payload segments up to this one are past their retention."""

    of: dict[str, Receipt] = field(default_factory=dict)
    dropped: int = 0


@dataclass(slots=True)
class _Reader:
    """What has to be remembered on the way through the journal."""

    found: Receipts = field(default_factory=Receipts)
    granted: dict[str, Record] = field(default_factory=dict)
    asked: dict[str, Record] = field(default_factory=dict)
    in_force: dict[str, Applied] = field(default_factory=dict)
    accepted: dict[str, Accepted] = field(default_factory=dict)  # by tool
    spent: dict[str, list[Receipt]] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    by: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    changed: set[str] = field(default_factory=set)
    enrolled: dict[str, int] = field(default_factory=dict)
    shut: dict[str, int] = field(default_factory=dict)  # by agent, the newest generation that is over
    invited: dict[Digest, tuple[str, str]] = field(default_factory=dict)  # by ticket, to which tenant and project
    layers: dict[str, tuple[str, str]] = field(default_factory=dict)  # by agent, as it is enrolled
    envelope: Record | None = None
    ordered: set[Digest] = field(default_factory=set)
    stopped: bool = False

    def take(self, record: Record) -> None:
        match record.fact:
            case PayloadsDropped() as fact:
                self.found.dropped = max(self.found.dropped, fact.through)
            case EnvelopeAccepted():
                self.envelope = record
            case PolicyApplied() as fact:
                digest, signature = fact.policy_digest.hex(), self._ordered(record, "policy_apply", fact.fingerprint)
                self.in_force[fact.scope] = Applied(fact.scope, digest, record.at, record.payloads, signature)
            case RequestOpened() as fact:
                self.asked[fact.request] = record
            case ActGranted() as fact:
                self._grant(f"act/{fact.act}", record, fact.cn, fact.tool)
            case LeaseOpened() as fact:
                self._grant(f"lease/{fact.lease}", record, fact.cn)
            case RunStarted() as fact:
                self.by[f"agent {fact.cn}"].add(fact.run)
            case RunStopped() as fact:
                self.over.add(fact.run)
            case LeaseClosed() as fact:
                self.over.add(f"lease/{fact.lease}")
            case ActEnded() as fact:
                self.over.add(f"act/{fact.act}")
            case BrokerStarted():
                self.over |= {f"lease/{id}" for id, one in self.granted.items() if isinstance(one.fact, LeaseOpened)}
            case ClockAccepted() | JournalRestored() as fact:
                for cn, generation in self.enrolled.items():
                    self._end(f"agent {cn}")
                    self.shut[cn] = generation if isinstance(fact, JournalRestored) else self.shut.get(cn, 0)
            case ToolChanged() as fact:
                self.changed.add(f"{fact.server}.{fact.tool}")
                self._end(f"tool {fact.server}.{fact.tool}")
            case ToolsAccepted() as fact:
                self._accept(record, fact)
            case AgentInvited() as fact:
                self.invited[fact.ticket_digest] = fact.tenant, fact.project
            case AgentEnrolled() as fact:
                self.layers[fact.cn] = self.invited.get(fact.ticket_digest, ("", ""))
                self.enrolled[fact.cn], self.shut[fact.cn] = fact.generation, fact.generation - 1
                self._end(f"agent {fact.cn}")
            case AgentFrozen() | AgentRevoked() as fact:
                self.shut[fact.cn] = self.enrolled.get(fact.cn, 0)
                self._end(f"agent {fact.cn}")
            case AllStopped() | StopLifted() as fact:
                self.stopped = isinstance(fact, AllStopped)
            case CallClaimed() as fact:
                self._claimed(record, fact)
            case CallEnded() as fact if known := self.found.of.get(fact.claim):
                known.ended = record
            case OutcomeNoted() as fact if known := self.found.of.get(fact.claim):
                known.noted, known.noted_by = record, self._ordered(record, "outcome_note", fact.fingerprint)
                if known.noted_by is None:
                    known.flaws.append("no signed envelope noted what came of it")
            case _:
                pass

    def _grant(self, consent: str, record: Record, cn: str, tool: str = "") -> None:
        self.granted[consent.partition("/")[2]] = record
        self.by[f"agent {cn}"].add(consent)
        if tool:
            self.by[f"tool {tool}"].add(consent)

    def _accept(self, record: Record, fact: ToolsAccepted) -> None:
        signature = self._ordered(record, "tools_accept", fact.fingerprint)
        accepted = Accepted(fact.server, record.payloads, signature)
        for tool in (f"{fact.server}.{name}" for name in fact.tools):
            self.accepted[tool] = accepted
            self.changed.discard(tool)
            self._end(f"tool {tool}")

    def _end(self, of: str) -> None:
        """Without further records, the consents and runs of an agent, or what was signed for a tool, are over."""
        self.over |= self.by.pop(of, set())

    def _ordered(self, record: Record, op: str, fingerprint: Fingerprint) -> Signature | None:
        """The envelope of what the operator ordered stands before it in the same turn, and orders it once."""
        known = self.envelope
        ours = known and known.seq < record.seq <= known.seq + known.rest and len(known.payloads) == 2
        if not known or not ours or not isinstance(known.fact, EnvelopeAccepted) or known.fact.op != op:
            return None
        raw, armored = known.payloads
        if raw.digest in self.ordered:
            return None
        self.ordered.add(raw.digest)
        return Signature(raw, armored, names.NAMESPACE_ADMIN, fingerprint, record.at)

    def _claimed(self, record: Record, fact: CallClaimed) -> None:
        stands_under = scopes(fact.cn, *self.layers.get(fact.cn, ()))
        layers = [self.in_force[scope] for scope in stands_under if scope in self.in_force]
        named = tuple(layer for layer in layers if layer.digest in fact.policies)
        receipt = Receipt(record, named, self.accepted.get(fact.tool))
        if [ref.digest for ref in record.payloads] != [fact.args_digest]:
            receipt.flaws.append("the bytes that it names are not its arguments")
        digests = [layer.digest for layer in layers]
        if "instance" not in self.in_force or not {*fact.policies} <= {*digests}:
            receipt.flaws.append("a policy that it names was not in force")
        elif list(fact.policies) != digests:
            receipt.flaws.append("the policies that it names are not all that were in force for its agent, in order")
        if any(one.signature is None for one in receipt.policies):
            receipt.flaws.append("no signed envelope put its policy in force")
        if receipt.accepted is None:
            receipt.flaws.append("nobody accepted its tool")
        elif receipt.accepted.signature is None:
            receipt.flaws.append("no signed envelope accepted its tool")
        if self.stopped:
            receipt.flaws.append("everything was stopped when it was begun")
        if fact.tool in self.changed:
            receipt.flaws.append("its tool was not as it was accepted when it was begun")
        if fact.generation <= self.shut.get(fact.cn, 0):
            receipt.flaws.append("its agent's enrolment was over when it was begun")
        if fact.run in self.over:
            receipt.flaws.append("its run was over when it was begun")
        kind, id = receipt.consent
        if kind != "automatic":
            receipt.granted = self.granted.get(id)
            if fact.consent in self.over:
                receipt.flaws.append("its consent was over when it was begun")
            before = self.spent.setdefault(fact.consent, [])
            receipt.flaws += _misfits(receipt, before)
            before.append(receipt)
            if receipt.granted and receipt.signature is None:
                receipt.flaws.append("its consent has no signed bytes")
            answered = receipt.granted.fact if receipt.granted else None
            if isinstance(answered, ActGranted | LeaseOpened):
                receipt.asked = self.asked.get(answered.request)
        self.found.of[fact.claim] = receipt


def read(records: Iterable[Record]) -> Receipts:
    """Every receipt that a journal holds."""
    reader = _Reader()
    for record in records:
        reader.take(record)
    return reader.found


def _misfits(receipt: Receipt, before: list[Receipt]) -> Iterator[str]:
    """What the consent that a claim names does not cover. before: the claims that took from the same one."""
    claim, at = receipt.claim, receipt.claimed.at
    spent = [one for one in before if one.outcome != _NOT_SENT]
    match receipt.granted.fact if receipt.granted else None:
        case ActGranted() as act:
            allowed = (act.cn, act.generation, act.tool, act.account, act.resources, act.args_digest, act.tool_digest)
            if allowed != (
                claim.cn, claim.generation, claim.tool, claim.account, claim.resources, claim.args_digest,
                claim.tool_digest,
            ):  # fmt: skip
                yield "the act was signed for another call"
            if not act.not_before_at <= at < act.expires_at:
                yield "the act did not hold at that time"
            if spent:
                yield f"the act was spent before, by claim {spent[0].claim.claim}"
        case LeaseOpened() as lease:
            read = (claim.cn, claim.generation, claim.account, claim.run, claim.tool_class)
            if read != (lease.cn, lease.generation, lease.account, lease.run, "read"):
                yield "the lease was signed for other reads"
            ends_at = before[0].claimed.at + lease.seconds * SECOND if before else lease.first_read_by_at
            if at >= ends_at:
                yield "the lease was over by its time"
            if len(spent) >= lease.operations:
                yield "the lease was over by its operations"
        case _:
            yield "no record of the consent that it names"
