"""What the book holds: directives and what remains of them, agents, tickets."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from broker.rules.lifecycle import State
from broker.wire import records as r
from broker.wire.act_records import CallFrozen
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instant

_TIMES = struct.Struct(">4q")


@dataclass(slots=True)
class PointerState:
    """What is known of telling the agent: channel and error of the last try, attempts so far, times (0: never)."""

    attempts: int = 0
    channel: str = ""
    delivered_at: Instant = r.NEVER
    next_at: Instant = r.NEVER
    last_error: str = ""


@dataclass(slots=True)
class Directive:
    """An admitted statement while it is active. statement and signature are the exact bytes; frozen: what a call of a
    tool behind the gateway was when it was admitted."""

    id: DirectiveId
    cn: Cn
    generation: Generation
    kind: str
    tool: str
    op: str
    issued_at: Instant
    not_before_at: Instant
    expires_at: Instant
    admitted_at: Instant
    fingerprint: Fingerprint
    signer_digest: Digest
    allowed_digest: Digest
    refs: tuple[r.PayloadRef, ...]
    statement: bytes = b""
    signature: bytes = b""
    pointer: PointerState = field(default_factory=PointerState)
    frozen: CallFrozen | None = None


class TombstoneRow(NamedTuple):
    """A tombstone as it is written down. times: see Tombstone.times; enforced: see Tombstone."""

    cn: Cn
    generation: Generation
    kind: str
    tool: str
    op: str
    fingerprint: Fingerprint
    state: State
    reason: str
    attempts: int
    times: tuple[Instant, Instant, Instant, Instant]
    enforced: bool


class Tombstone:
    """What remains of a finished directive so that its id can't return. Kept small: there may be a great many.

    enforced: was its call held to what was signed? Of a consumed one that is so once its act is there.
    """

    __slots__ = (
        "_times",
        "attempts",
        "cn",
        "enforced",
        "fingerprint",
        "generation",
        "kind",
        "op",
        "reason",
        "state",
        "tool",
    )

    def __init__(self, row: TombstoneRow) -> None:
        self.cn, self.generation, self.kind = row.cn, row.generation, row.kind
        self.tool, self.op, self.fingerprint = row.tool, row.op, row.fingerprint
        self.state, self.reason, self.attempts, self.enforced = row.state, row.reason, row.attempts, row.enforced
        self._times = _TIMES.pack(*row.times)

    @classmethod
    def of(cls, ended: Directive, state: State, reason: str, ended_at: Instant) -> Tombstone:
        """Of a directive that ended so."""
        times = (ended.issued_at, ended.expires_at, ended_at, ended.pointer.delivered_at)
        bound = (ended.kind, ended.tool, ended.op, ended.fingerprint)
        rest = (ended.pointer.attempts, times, ended.frozen is not None and state is not State.CONSUMED)
        return cls(TombstoneRow(ended.cn, ended.generation, *bound, state, reason, *rest))

    @property
    def row(self) -> TombstoneRow:
        """All of it, as plain values."""
        bound = (self.kind, self.tool, self.op, self.fingerprint)
        rest = (self.attempts, self.times, self.enforced)
        return TombstoneRow(self.cn, self.generation, *bound, self.state, self.reason, *rest)

    @property
    def times(self) -> tuple[Instant, Instant, Instant, Instant]:
        """issued_at, expires_at, ended_at, delivered_at (0: never)."""
        issued, expires, ended, delivered = _TIMES.unpack(self._times)
        return Instant(issued), Instant(expires), Instant(ended), Instant(delivered)


@dataclass(slots=True)
class Repeat:
    """A consumed directive whose answer is held for a moment for the client that lost it."""

    directive: Directive
    key_digest: Digest
    attempt: str
    until_at: Instant


@dataclass(slots=True)
class Report:
    """What an agent said came of a directive that it had consumed. note: its own words."""

    outcome: str
    at: Instant
    refs: tuple[r.PayloadRef, ...]
    note: str = ""


class Enrolment(StrEnum):
    """Where an agent stands."""

    ENROLLED = "enrolled"
    REVOKED = "revoked"
    FROZEN = "frozen"


@dataclass(slots=True)
class Renewal:
    """What followed a certificate: the key it was renewed with, and the answer."""

    csr_key_digest: Digest
    until_at: Instant
    refs: tuple[r.PayloadRef, ...]
    certificate: bytes


@dataclass(slots=True)
class Agent:
    """An enrolled name. lineage: by the digest of a certificate, what it was renewed into."""

    cn: Cn
    generation: Generation
    state: Enrolment
    not_after_at: Instant
    renewals: int = 0
    tenant: str = ""
    project: str = ""
    lineage: dict[Digest, Renewal] = field(default_factory=dict)


@dataclass(slots=True)
class Ticket:
    """An invitation, known by its digest. answer: what redeeming it gave, for a lost reply; None while unspent."""

    cn: Cn
    expires_at: Instant
    tenant: str = ""
    project: str = ""
    answer: Renewal | None = None

    @property
    def answer_until_at(self) -> Instant:
        """Until when a lost reply may be asked for again; 0 while unspent."""
        return self.answer.until_at if self.answer else r.NEVER
