"""A ledger as plain values, and back: what a snapshot holds of it. Exact bytes stay in the payloads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from broker.rules.authority.entries import Accepted, Act, Claim, EndedLease, InForce, Lease, Request, Run, Signed
from broker.rules.authority.ledger import Ledger
from broker.rules.rates import Bucket
from broker.wire.names import Cn, Digest, Generation, Instant
from broker.wire.records import PayloadRef


@dataclass(frozen=True, slots=True)
class ForceImage:
    """A policy in force, by its digest and where its bytes are."""

    digest: Digest
    refs: tuple[PayloadRef, ...]


@dataclass(frozen=True, slots=True)
class AcceptedImage:
    """Accepted tools of one server, by name and where their definitions are."""

    server: str
    names: tuple[str, ...]
    refs: tuple[PayloadRef, ...]


@dataclass(frozen=True, slots=True)
class LedgerImage:
    """All that a ledger decides on, in the order in which it came to be."""

    policies: dict[str, ForceImage]
    accepted: tuple[AcceptedImage, ...]
    changed: tuple[tuple[str, str, Digest], ...]
    runs: tuple[Run, ...]
    run_of: tuple[tuple[Cn, Generation, str], ...]
    requests: tuple[Request, ...]
    acts: tuple[Act, ...]
    leases: tuple[Lease, ...]
    ended_leases: tuple[EndedLease, ...]
    lease_ids: dict[str, Instant]
    claims: tuple[Claim, ...]
    by_call_id: tuple[tuple[Cn, Generation, str, str], ...]
    stored: dict[Cn, Bucket]
    stopped_at: Instant


def of(ledger: Ledger) -> LedgerImage:
    """The image of a ledger as it is now, without the bytes that `Ledger.fill` reads."""
    return LedgerImage(
        policies={scope: ForceImage(force.digest, force.refs) for scope, force in ledger.policies.items()},
        accepted=tuple(AcceptedImage(one.server, tuple(sorted(one.names)), one.refs) for one in ledger.accepted),
        changed=tuple((server, tool, digest) for (server, tool), digest in ledger.changed.items()),
        runs=tuple(replace(run) for run in ledger.runs.values()),
        run_of=tuple((cn, generation, run) for (cn, generation), run in ledger.run_of.items()),
        requests=tuple(_request(request) for request in ledger.requests.values()),
        acts=tuple(replace(act, signed=_signed(act.signed)) for act in ledger.acts.values()),
        leases=tuple(replace(lease, signed=_signed(lease.signed)) for lease in ledger.leases.values()),
        ended_leases=tuple(ledger.ended_leases.values()),
        lease_ids=dict(ledger.lease_ids),
        claims=tuple(replace(claim) for claim in ledger.claims.values()),
        by_call_id=tuple((*who, claim) for who, claim in ledger.by_call_id.items()),
        stored=dict(ledger.stored),
        stopped_at=ledger.stopped_at,
    )


def ledger(image: LedgerImage) -> Ledger:
    """The ledger that an image is of; `Ledger.fill` brings the bytes."""
    made = Ledger()
    made.policies = {scope: InForce(force.digest, force.refs) for scope, force in image.policies.items()}
    made.accepted = [Accepted(one.server, set(one.names), one.refs) for one in image.accepted]
    made.changed = {(server, tool): digest for server, tool, digest in image.changed}
    made.runs = {run.run: run for run in image.runs}
    made.run_of = {(cn, generation): run for cn, generation, run in image.run_of}
    made.requests = {request.request: request for request in image.requests}
    made.index_requests()
    made.acts = {act.act: act for act in image.acts}
    made.leases = {lease.lease: lease for lease in image.leases}
    made.ended_leases = {lease.lease: lease for lease in image.ended_leases}
    made.lease_ids = dict(image.lease_ids)
    made.claims = {claim.claim: claim for claim in image.claims}
    made.running = {claim.claim: None for claim in image.claims if not claim.outcome}
    for claim in image.claims:
        if claim.outcome:
            made.remember(claim)
    made.by_call_id = {(cn, generation, call_id): claim for cn, generation, call_id, claim in image.by_call_id}
    made.stored = dict(image.stored)
    made.stopped_at = image.stopped_at
    return made


def _request(request: Request) -> Request:
    return replace(request, args=b"", note="", pointer=replace(request.pointer))


def _signed(signed: Signed) -> Signed:
    return replace(signed, statement=b"", signature=b"")
