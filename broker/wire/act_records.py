"""The records of what the operator allows: policies, accepted tools, requests, leases, acts, calls, runs, the stop.

They are kinds of broker/wire/records.py, and docs/formats/journal.md is the normative page for them too.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instant


@dataclass(frozen=True, slots=True)
class PolicyApplied:
    """A policy is in force. scope: `instance`, `tenant/NAME`, `project/NAME` or `agent/CN`. Payload: its bytes."""

    scope: str
    policy_digest: Digest
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class ToolsAccepted:
    """The operator pinned definitions of a server's tools, by name. Payload: as in broker/wire/accepted.py."""

    server: str
    tools: tuple[str, ...]
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class ToolChanged:
    """A server was seen to define an accepted tool otherwise, or to be another: what was asked and signed is void."""

    server: str
    tool: str
    seen_digest: Digest


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The span that an agent's budgets count over began: with its first call, or because the operator said so."""

    run: str
    cn: Cn
    generation: Generation
    by: str


@dataclass(frozen=True, slots=True)
class RunStopped:
    """A run is over, and never goes on."""

    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class RequestOpened:
    """A call waits for the operator. regime: lease or act; reason: which rule of which policy asks. Payload: the frozen
    arguments."""

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
    expires_at: Instant


@dataclass(frozen=True, slots=True)
class RequestDenied:
    """The operator said no. Payload: a note to the agent, perhaps empty."""

    request: str
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request is over without an answer: expired, or what it rests on ceased to hold."""

    request: str
    reason: str


@dataclass(frozen=True, slots=True)
class CallFrozen:
    """A signed tool_call for a tool behind the gateway was bound, when it was admitted, to what it was then.

    policies: the digests (hex) of the layers that it was judged by.
    """

    id: DirectiveId
    account: str
    resources: tuple[str, ...]
    args_digest: Digest
    tool_digest: Digest
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActGranted:
    """One call of exactly these arguments was signed, by an approval or by a consumed tool_call.

    request: what it answers, empty for none. Payloads: the statement, its signature.
    """

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
    fingerprint: Fingerprint
    signer_digest: Digest
    allowed_digest: Digest


@dataclass(frozen=True, slots=True)
class ActEnded:
    """A granted act that was never claimed is over: expired, revoked or invalidated, and why."""

    act: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseOpened:
    """The operator signed `read now`: reads of one account, so many within so many seconds of the first.

    first_read_by_at: until then it waits for the first. Payloads: the statement, its signature.
    """

    lease: str
    request: str
    cn: Cn
    generation: Generation
    run: str
    account: str
    seconds: int
    operations: int
    first_read_by_at: Instant
    fingerprint: Fingerprint
    signer_digest: Digest
    allowed_digest: Digest


@dataclass(frozen=True, slots=True)
class LeaseClosed:
    """No more reads. operations, used_s: what was used of it."""

    lease: str
    reason: str
    operations: int
    used_s: int


@dataclass(frozen=True, slots=True)
class CallClaimed:
    """Written before a call is sent: the intent, and the consent that it spends.

    consent: `automatic`, `lease/ID` or `act/ID`; call_id: the agent's own name for it, perhaps empty; tool_digest: of
    the tool's accepted definition. Payload: the frozen arguments.
    """

    claim: str
    cn: Cn
    generation: Generation
    run: str
    tool: str
    tool_class: str
    account: str
    resources: tuple[str, ...]
    args_digest: Digest
    tool_digest: Digest
    consent: str
    call_id: str
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallEnded:
    """What came of a claim: done, failed, not_dispatched or outcome_unknown. Payload: the answer's bytes, or none
    where nobody may ask for them again, or more than enough of them were stored."""

    claim: str
    outcome: str
    answer_digest: Digest
    answer_bytes: int


@dataclass(frozen=True, slots=True)
class OutcomeNoted:
    """The operator says what became of a call whose outcome is unknown. Payload: the note."""

    claim: str
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class UsageReported:
    """Figures from the operator socket, added to a run's. cost_micro: 10,000 to the cent."""

    run: str
    input_tokens: int
    output_tokens: int
    cost_micro: int
    caller: str


@dataclass(frozen=True, slots=True)
class AllStopped:
    """The emergency stop: no claim, no consume, no pointer, until it is lifted."""

    caller: str


@dataclass(frozen=True, slots=True)
class StopLifted:
    """The operator lifted the emergency stop."""

    fingerprint: Fingerprint


ActFact = (
    PolicyApplied
    | ToolsAccepted
    | ToolChanged
    | RunStarted
    | RunStopped
    | RequestOpened
    | RequestDenied
    | RequestEnded
    | CallFrozen
    | ActGranted
    | ActEnded
    | LeaseOpened
    | LeaseClosed
    | CallClaimed
    | CallEnded
    | OutcomeNoted
    | UsageReported
    | AllStopped
    | StopLifted
)
