"""Who is in the story: agents with their certificates, operators with their keys, and what they sign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from broker.rules.admin import Order
from broker.rules.admit import Terms
from broker.rules.decision import Request
from broker.rules.identity import Ask
from broker.wire import envelope, statement
from broker.wire.caller import Caller
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
from broker.wire.statement import Action, BoundAction, Instruction, Statement, Target
from broker.wire.times import SECOND
from broker.wire.verified import Standing, VerifiedBytes

DEMO = Instance("demo")
HOUR = 3600 * SECOND
A, B = Cn("worker-a"), Cn("worker-b")
TERMS = Terms(DEMO, 90 * 24 * 3600, 100, lambda tool, op: True)


def digest(word: str) -> Digest:
    return Digest(sha256(word.encode()).digest())


ALLOWED = digest("allowed_signers")
FIRST, SECOND_KEY = digest("the first operator key"), digest("the second operator key")
BOTH = Standing(ALLOWED, frozenset((FIRST, SECOND_KEY)), frozenset())
FIRST_ALONE = Standing(digest("allowed_signers, shorter"), frozenset((FIRST,)), frozenset((SECOND_KEY,)))


def operator(op: str, subject: str = "") -> Request:
    """The operator asks."""
    return Request("operator", "uid:1000", op, subject)


def caller(cn: Cn, generation: int, *, key: str = "key", certificate: str = "certificate") -> Caller:
    """An agent's certificate that lasts longer than any story."""
    words = f"{cn} {generation}"
    ends_at = Instant(1 << 60)
    return Caller(cn, Generation(generation), ends_at, digest(f"{words} {certificate}"), digest(f"{words} {key}"))


def signed_statement(
    id: str,
    now: Instant,
    *,
    cn: Cn = A,
    generation: int = 1,
    opens_s: int = 0,
    lasts_s: int = 3600,
    signer: Digest = FIRST,
    bound: bool = False,
    action: Action | None = None,
) -> tuple[VerifiedBytes, Statement]:
    """A statement as the operator door has it once ssh-keygen has accepted the signature."""
    call = BoundAction("tool_call", "files", "write_file", {"path": id})
    action = action or (call if bound else Instruction(f"Do {id}."))
    value = Statement(
        DEMO,
        DirectiveId(id),
        Target(cn, Generation(generation)),
        now,
        Instant(now + opens_s * SECOND),
        Instant(now + lasts_s * SECOND),
        action,
    )
    raw = statement.encode(value)
    return _verified(raw, NAMESPACE_DIRECTIVE, signer), value


def order(op: str, now: Instant, nonce: str) -> Order:
    """A signed envelope that has come to its route."""
    value = Envelope(DEMO, op, {"nonce": nonce}, now)
    verified = _verified(envelope.encode(value), NAMESPACE_ADMIN, FIRST)
    return Order(op, verified, value, operator(op))


def _verified(raw: bytes, namespace: str, signer: Digest) -> VerifiedBytes:
    return VerifiedBytes(raw, b"signature", namespace, Fingerprint(f"SHA256:{signer.hex()[:43]}"), signer, ALLOWED)


@dataclass(frozen=True)
class Made:
    """A certificate of the story's authority."""

    pem: str
    cert_digest: Digest
    not_after_at: Instant


def request(cn: Cn, key: str) -> tuple[Ask, Callable[[Cn, Generation, Instant], Made]]:
    """A certificate request under this key, and the authority's hand: each certificate that it makes is another."""
    serials: list[str] = []

    def issue(cn: Cn, generation: Generation, now: Instant, /) -> Made:
        serials.append(f"{cn} {generation} {key} {now} {len(serials)}")
        return Made(serials[-1], digest(serials[-1]), Instant(now + 24 * HOUR))

    return Ask(cn, digest(key)), issue
