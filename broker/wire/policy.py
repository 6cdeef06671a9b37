"""A policy's canonical JSON: what is signed and stored. docs/formats/policy.md is the normative page."""

from __future__ import annotations

from hashlib import sha256
from types import MappingProxyType

from broker.errors import Malformed
from broker.wire import strict_json
from broker.wire.names import Digest
from broker.wire.notes import Problem
from broker.wire.policy_shape import Contents, NotAPolicy, contents
from broker.wire.policy_terms import Account, Budgets, Policy, Tier, ToolClass
from broker.wire.strict_json import JsonValue

__all__ = ["MAX_BYTES", "Account", "Budgets", "NotAPolicy", "Policy", "Problem", "Tier", "ToolClass", "encode", "of"]

MAX_BYTES = 262144


def parse(raw: bytes) -> Policy:
    """The policy in canonical bytes. Raises Malformed; NotAPolicy, one of its kind, lists every problem."""
    value = strict_json.parse(raw, "policy", max_bytes=MAX_BYTES)
    if strict_json.canonical(value) != raw:
        raise Malformed("policy", "not in its canonical form")
    return _policy(raw, contents(value))


def of(value: JsonValue) -> Policy:
    """The policy in a JSON value, as a file or a test writes it. Raises Malformed, as `parse` does."""
    found = contents(value)
    raw = strict_json.canonical(value)
    if len(raw) > MAX_BYTES:
        raise Malformed("policy", f"{len(raw)} bytes, more than {MAX_BYTES}")
    return _policy(raw, found)


def encode(policy: Policy) -> bytes:
    """The canonical bytes of a policy: what `parse` takes."""
    return policy.raw


def _policy(raw: bytes, found: Contents) -> Policy:
    return Policy(
        Digest(sha256(raw).digest()),
        raw,
        found.name,
        frozenset(found.lists[Tier.ALLOWED]),
        found.lists[Tier.APPROVAL_REQUIRED],
        found.lists[Tier.DENIED],
        MappingProxyType(found.tools),
        MappingProxyType(found.accounts),
        found.budgets,
    )
