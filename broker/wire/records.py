"""Every kind of record: a past-tense fact. docs/formats/journal.md is the normative page."""

from __future__ import annotations

from dataclasses import dataclass

from broker.wire.act_records import ActFact
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant

NEVER = Instant(0)


@dataclass(frozen=True, slots=True)
class InstanceCreated:
    """The first record of a journal. ca_digest: SHA-256 of the CA certificate (DER)."""

    instance: Instance
    ca_digest: Digest


@dataclass(frozen=True, slots=True)
class BrokerStarted:
    """A daemon took the state folder. cut_bytes: a torn tail that its recovery removed."""

    version: str
    cut_bytes: int


@dataclass(frozen=True, slots=True)
class BrokerStopped:
    """A daemon finished what it had accepted and left."""


@dataclass(frozen=True, slots=True)
class ClockAccepted:
    """The operator told the broker to go on with a clock that was behind the journal, whose newest time was journal_at.

    What was active is invalidated, open tickets are void. What was used in the time that is taken back stays used.
    """

    journal_at: Instant


@dataclass(frozen=True, slots=True)
class JournalRestored:
    """The operator said that this state folder is older than what was last written; lost: by so many records at most.

    All that was active is ended, every agent is shut out, and generations go on beyond any that may have been given.
    """

    lost: int


@dataclass(frozen=True, slots=True)
class PayloadsDropped:
    """The payload segments up to this one are past their retention: their files are removed, the records stay."""

    through: int


@dataclass(frozen=True, slots=True)
class SignersChanged:
    """allowed_signers was seen with new content; the fingerprints of the keys in it, in file order."""

    allowed_digest: Digest
    fingerprints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvelopeAccepted:
    """A signed admin operation was taken, once. Payloads: the envelope's bytes, its signature."""

    op: str
    envelope_digest: Digest
    fresh_until_at: Instant
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class AgentInvited:
    """A single-use ticket for one agent name. The ticket itself is known to its holder alone.

    tenant, project: the layers of policy that the agent stands under beside its own; empty for none.
    """

    cn: Cn
    ticket_digest: Digest
    expires_at: Instant
    fingerprint: Fingerprint
    tenant: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class AgentEnrolled:
    """A ticket was redeemed: a new generation, and the end of all that the old one held. Payload: the certificate."""

    cn: Cn
    generation: Generation
    ticket_digest: Digest
    csr_key_digest: Digest
    cert_digest: Digest
    not_after_at: Instant


@dataclass(frozen=True, slots=True)
class CertificateRenewed:
    """A certificate followed another of the same generation. Payload: the new certificate."""

    cn: Cn
    generation: Generation
    from_cert_digest: Digest
    csr_key_digest: Digest
    cert_digest: Digest
    not_after_at: Instant


@dataclass(frozen=True, slots=True)
class AgentFrozen:
    """One certificate was renewed with two different keys: its identity was copied. Only a new enrolment thaws."""

    cn: Cn
    generation: Generation
    from_cert_digest: Digest
    csr_key_digest: Digest


@dataclass(frozen=True, slots=True)
class AgentRevoked:
    """The operator shut an agent out; its active directives are invalidated, its tickets void."""

    cn: Cn
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class AgentPaused:
    """The operator barred an agent for a while, and whoever enrols under its name; what waits stays open."""

    cn: Cn
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class AgentResumed:
    """The operator ended an agent's pause."""

    cn: Cn
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class DirectiveAdmitted:
    """A verified statement was stored. Payloads: the statement's exact bytes, its signature.

    content_digest: SHA-256 of the canonical action. tool and op are empty for an instruction.
    """

    id: DirectiveId
    cn: Cn
    generation: Generation
    kind: str
    tool: str
    op: str
    content_digest: Digest
    issued_at: Instant
    not_before_at: Instant
    expires_at: Instant
    fingerprint: Fingerprint
    signer_digest: Digest
    allowed_digest: Digest


@dataclass(frozen=True, slots=True)
class DirectiveConsumed:
    """The one compare-and-swap. attempt is empty when the client gave none; until repeat_until_at it may ask again."""

    id: DirectiveId
    cn: Cn
    generation: Generation
    key_digest: Digest
    attempt: str = ""
    repeat_until_at: Instant = NEVER


@dataclass(frozen=True, slots=True)
class ConsumeRepeated:
    """The same identity asked again with the same attempt key and got the stored answer again."""

    id: DirectiveId
    cn: Cn
    attempt: str


@dataclass(frozen=True, slots=True)
class DirectiveReported:
    """What the agent that consumed it says came of it: its own unverified word. Payload: its note, perhaps empty."""

    id: DirectiveId
    cn: Cn
    generation: Generation
    outcome: str


@dataclass(frozen=True, slots=True)
class DirectiveRevoked:
    """The operator took a directive back before it was consumed."""

    id: DirectiveId
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class RepeatRevoked:
    """The operator took a consumed directive back within its minute: its answer is not given again."""

    id: DirectiveId
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class DirectiveInvalidated:
    """What a directive rests on ceased to hold; the reason is one of errors.Reason."""

    id: DirectiveId
    reason: str


@dataclass(frozen=True, slots=True)
class DirectivesExpired:
    """Windows that closed unused."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PointerDelivered:
    """An agent was told an id."""

    id: DirectiveId
    cn: Cn
    channel: str
    attempt: int


@dataclass(frozen=True, slots=True)
class PointerFailed:
    """Telling an agent an id did not work; it is tried again at next_at while the directive lives."""

    id: DirectiveId
    cn: Cn
    channel: str
    attempt: int
    why: str
    next_at: Instant


@dataclass(frozen=True, slots=True)
class SelftestPassed:
    """A signed test statement went the whole way but was not stored."""

    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A decision against a request; those of one caller within a minute fold, and count says how many this speaks for.

    door: agent or operator; caller: a CN, or uid:N; op: the route's verb; subject: the id or name it was about, empty
    where the request's own words are not to be trusted or there were too many; reason: one of errors.Reason. Of a tool
    call, rule: what of a policy refused it, in words that hold nothing of its arguments; policies: the digests (hex) of
    the layers that it was judged by. Both are empty elsewhere.
    """

    door: str
    caller: str
    op: str
    subject: str
    reason: str
    count: int
    rule: str = ""
    policies: tuple[str, ...] = ()


Fact = (
    InstanceCreated
    | BrokerStarted
    | BrokerStopped
    | ClockAccepted
    | JournalRestored
    | PayloadsDropped
    | SignersChanged
    | EnvelopeAccepted
    | AgentInvited
    | AgentEnrolled
    | CertificateRenewed
    | AgentFrozen
    | AgentRevoked
    | AgentPaused
    | AgentResumed
    | DirectiveAdmitted
    | DirectiveConsumed
    | ConsumeRepeated
    | DirectiveReported
    | DirectiveRevoked
    | RepeatRevoked
    | DirectiveInvalidated
    | DirectivesExpired
    | PointerDelivered
    | PointerFailed
    | SelftestPassed
    | RequestRefused
    | ActFact
)


@dataclass(frozen=True, slots=True)
class PayloadRef:
    """Where exact bytes lie: payload segment number, offset of the frame in it, length of the bytes, their SHA-256."""

    digest: Digest
    segment: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Record:
    """A fact at its place in the chain: `prev` is the digest of the record before (32 zero bytes for the first).

    rest: how many records of the same turn follow; what a turn decided counts whole or not at all.
    """

    seq: int
    at: Instant
    prev: Digest
    payloads: tuple[PayloadRef, ...]
    fact: Fact
    rest: int = 0


@dataclass(frozen=True, slots=True)
class Draft:
    """A fact that a rule decided, with the exact bytes that must be on disk before it."""

    fact: Fact
    payloads: tuple[bytes, ...] = ()
