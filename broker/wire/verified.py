"""Bytes that ssh-keygen has accepted: another type than bytes.

Made in `broker/trust/operator.py` alone, and made again in `broker/daemon.py` from what the journal kept of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.wire.names import Digest, Fingerprint


@dataclass(frozen=True, slots=True)
class VerifiedBytes:
    """The exact bytes whose signature `ssh-keygen -Y verify` accepted with exit status 0, and under what.

    raw: the signed bytes; signature: the armored SSHSIG as it came; namespace: the one verified under;
    fingerprint: the key that verified; signer_digest: SHA-256 of the public key blob inside the signature;
    allowed_digest: SHA-256 of the allowed_signers content used.
    """

    raw: bytes
    signature: bytes
    namespace: str
    fingerprint: Fingerprint
    signer_digest: Digest
    allowed_digest: Digest


@dataclass(frozen=True, slots=True)
class Standing:
    """Which operator keys still count, under the allowed_signers content of this moment.

    `good` holds signer digests that ssh-keygen accepts now; `bad` those it was asked about and does not accept.
    When the file could not be read both are empty: nothing is handed out and nothing is invalidated.
    """

    allowed_digest: Digest
    good: frozenset[Digest]
    bad: frozenset[Digest]


NOBODY = Standing(Digest(b""), frozenset(), frozenset())
