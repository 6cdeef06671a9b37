"""How long a lease lasts, and the record of its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from broker.rules.authority.entries import Lease
from broker.wire.act_records import LeaseClosed
from broker.wire.names import Cn, Digest, Instant
from broker.wire.policy_terms import Account
from broker.wire.records import Draft
from broker.wire.times import SECOND


def ends_at(lease: Lease) -> Instant:
    """By the wall clock: its seconds from the first read, or the time by which that must have come."""
    began = lease.started_at
    return Instant(began + lease.seconds * SECOND) if began else lease.first_read_by_at


def over(lease: Lease, now: Instant, elapsed_s: Mapping[str, float], waited_s: Mapping[str, float]) -> str:
    """Why no read goes through this lease any more; empty while one does.

    By a clock that counts suspend, how long ago each lease had its first read, and was opened.
    """
    if lease.used >= lease.operations:
        return "operations"
    if now >= ends_at(lease) or elapsed_s.get(lease.lease, 0.0) >= lease.seconds:
        return "time"
    if not lease.started_at and waited_s.get(lease.lease, 0.0) >= (ends_at(lease) - lease.opened_at) / SECOND:
        return "time"
    return ""


def is_kept(lease: Lease, tool: str, args_digest: Digest) -> bool:
    """Is its last operation for another read than this one: for the one that asked for the lease?"""
    return lease.own not in (None, (tool, args_digest)) and lease.used + 1 >= lease.operations


def within(lease: Lease, terms: Account) -> Lease:
    """The lease as far as the policy of this moment still goes."""
    seconds, operations = min(lease.seconds, terms.lease_seconds), min(lease.operations, terms.lease_operations)
    return replace(lease, seconds=seconds, operations=operations)


def all_closed(leases: Iterable[Lease], cn: Cn, reason: str, now: Instant) -> tuple[Draft, ...]:
    """The records of the end of all that an agent has."""
    return tuple(closed(lease, reason, now) for lease in leases if lease.cn == cn)


def closed(lease: Lease, reason: str, now: Instant) -> Draft:
    """The record of its end: what of it was used."""
    return Draft(LeaseClosed(lease.lease, reason, lease.used, used_s(lease, now)))


def used_s(lease: Lease, now: Instant) -> int:
    """Of its seconds, by the wall clock."""
    since_first = (now - lease.started_at) // SECOND if lease.started_at else 0
    return max(0, min(since_first, lease.seconds))
