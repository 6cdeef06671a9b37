"""How long a lease lasts, and the record of its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from broker.rules.authority.entries import Lease
from broker.wire.act_records import LeaseClosed
from broker.wire.names import Instant
from broker.wire.policy_terms import Account
from broker.wire.records import Draft
from broker.wire.times import SECOND


def ends_at(lease: Lease) -> Instant:
    """By the wall clock: its seconds from the first read, or the time by which that must have come."""
    began = lease.started_at
    return Instant(began + lease.seconds * SECOND) if began else lease.first_read_by_at


def over(lease: Lease, now: Instant, elapsed_s: Mapping[str, float]) -> str:
    """Why no read goes through this lease any more; empty while one does."""
    if lease.used >= lease.operations:
        return "operations"
    if now >= ends_at(lease) or elapsed_s.get(lease.lease, 0.0) >= lease.seconds:
        return "time"
    return ""


def within(lease: Lease, terms: Account) -> Lease:
    """The lease as far as the policy of this moment still goes."""
    seconds, operations = min(lease.seconds, terms.lease_seconds), min(lease.operations, terms.lease_operations)
    return replace(lease, seconds=seconds, operations=operations)


def closed(lease: Lease, reason: str, now: Instant) -> Draft:
    """The record of its end: what of it was used."""
    used_s = (now - lease.started_at) // SECOND if lease.started_at else 0
    return Draft(LeaseClosed(lease.lease, reason, lease.used, max(0, min(used_s, lease.seconds))))
