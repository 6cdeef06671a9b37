"""Which operator keys count at this moment; what rests on one that no longer does is ended before anybody uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.rules import consume as rules
from broker.trust.operator import OperatorTrust
from broker.turn import Turn
from broker.wire.names import NAMESPACE_DIRECTIVE, Digest, Fingerprint, Instant
from broker.wire.verified import NOBODY, Standing, VerifiedBytes


@dataclass(frozen=True, slots=True)
class Upholding:
    """trust: None where directives are disabled, and then no key counts."""

    turn: Turn
    clock: Callable[[], Instant]
    trust: OperatorTrust | None

    async def standing(self) -> Standing:
        """Asked anew before each decision that rests on a signature. Raises Refused, Fatal."""
        if self.trust is None:
            return NOBODY
        signers = self.turn.book.signers()
        standing = await self.trust.standing(self.clock(), {signer: self._witness(signer) for signer in signers})
        if not standing.bad.isdisjoint(signers):
            await self.turn.take(partial(rules.uphold, standing=standing), self.clock())
        return standing

    def _witness(self, signer: Digest) -> VerifiedBytes:
        """Something that this signer signed: what ssh-keygen is asked about anew."""
        signed = self.turn.book.signed_by(signer)
        return VerifiedBytes(
            signed.statement,
            signed.signature,
            NAMESPACE_DIRECTIVE,
            Fingerprint(signed.fingerprint),
            signer,
            signed.allowed_digest,
        )
