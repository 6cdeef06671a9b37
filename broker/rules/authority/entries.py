"""What the ledger holds: runs, requests, acts, leases, claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from broker.rules.entries import PointerState
from broker.wire.catalogue import PinnedTool
from broker.wire.names import Cn, Digest, Fingerprint, Generation, Instant
from broker.wire.policy_terms import Policy
from broker.wire.records import NEVER, PayloadRef


class RequestState(StrEnum):
    """Where a request stands. All but pending are final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    INVALIDATED = "invalidated"


class ActState(StrEnum):
    """Where a granted act stands. A claimed one is active again where its call was provably never sent."""

    ACTIVE = "active"
    CLAIMED = "claimed"
    EXPIRED = "expired"
    REVOKED = "revoked"
    INVALIDATED = "invalidated"


@dataclass(slots=True)
class Run:
    """What budgets count over. usage_at: when figures last came; stopped: why it is over, empty while it goes on."""

    run: str
    cn: Cn
    generation: Generation
    started_at: Instant
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro: int = 0
    usage_at: Instant = NEVER
    stopped: str = ""
    stopped_at: Instant = NEVER


@dataclass(slots=True)
class Request:
    """A call that waits, or waited, for the operator.

    reason: which rule asks; args: the frozen bytes; answer: the act or lease that came; acted: something was called by
    it.
    """

    request: str
    cn: Cn
    generation: Generation
    run: str
    regime: str
    tool: str
    account: str
    resources: tuple[str, ...]
    args_digest: Digest
    tool_digest: Digest
    policies: tuple[str, ...]
    reason: str
    opened_at: Instant
    expires_at: Instant
    refs: tuple[PayloadRef, ...]
    args: bytes = b""
    state: RequestState = RequestState.PENDING
    ended_at: Instant = NEVER
    note_refs: tuple[PayloadRef, ...] = ()
    note: str = ""
    answer: str = ""
    acted: bool = False
    pointer: PointerState = field(default_factory=PointerState)


@dataclass(slots=True)
class Signed:
    """The exact bytes that an act or a lease rests on, and who signed them."""

    fingerprint: Fingerprint
    signer_digest: Digest
    allowed_digest: Digest
    refs: tuple[PayloadRef, ...]
    statement: bytes = b""
    signature: bytes = b""


@dataclass(slots=True)
class Act:
    """One signed call. claim: what spent it, empty while nothing did; void: what it becomes instead of active again,
    where it was taken back while its call ran and that call was never sent."""

    act: str
    request: str
    cn: Cn
    generation: Generation
    tool: str
    account: str
    resources: tuple[str, ...]
    args_digest: Digest
    tool_digest: Digest
    not_before_at: Instant
    expires_at: Instant
    signed: Signed
    state: ActState = ActState.ACTIVE
    claim: str = ""
    ended_at: Instant = NEVER
    void: ActState | None = None


@dataclass(slots=True)
class Lease:
    """Reads of one account, while it is open.

    started_at: its first read, 0 while it waits for it; own: the tool and the arguments of the read that asked for it,
    as long as that was not made: one operation is kept for it.
    """

    lease: str
    cn: Cn
    generation: Generation
    run: str
    account: str
    seconds: int
    operations: int
    first_read_by_at: Instant
    opened_at: Instant
    signed: Signed
    started_at: Instant = NEVER
    used: int = 0
    request: str = ""
    own: tuple[str, Digest] | None = None


@dataclass(frozen=True, slots=True)
class EndedLease:
    """What a lease came to. used, used_s: of its operations and seconds; reason: why it was closed."""

    lease: str
    cn: Cn
    generation: Generation
    account: str
    seconds: int
    operations: int
    used: int
    used_s: int
    reason: str
    opened_at: Instant
    ended_at: Instant
    fingerprint: Fingerprint


@dataclass(slots=True)
class Claim:
    """A call that was begun. outcome: empty while it runs; answer_refs: where its answer is, as long as it is kept;
    own: it took the operation that its lease had kept for the read that asked for it."""

    claim: str
    cn: Cn
    generation: Generation
    run: str
    tool: str
    tool_class: str
    account: str
    args_digest: Digest
    consent: str
    call_id: str
    claimed_at: Instant
    outcome: str = ""
    ended_at: Instant = NEVER
    answer_refs: tuple[PayloadRef, ...] = ()
    noted: bool = False
    own: bool = False


@dataclass(slots=True)
class InForce:
    """A policy of one scope. policy: None until its bytes were read."""

    digest: Digest
    refs: tuple[PayloadRef, ...]
    policy: Policy | None = None


@dataclass(slots=True)
class Accepted:
    """What was accepted in one go, of one server; of its tools those that no later one replaced."""

    server: str
    names: set[str]
    refs: tuple[PayloadRef, ...]
    tools: dict[str, PinnedTool] = field(default_factory=dict)
