"""Who is calling on the agent door, as its certificate says."""

from __future__ import annotations

from dataclasses import dataclass

from broker.wire.names import Cn, Digest, Generation, Instant


@dataclass(frozen=True, slots=True)
class Caller:
    """An agent's identity out of a certificate whose chain TLS has checked; made in `broker/trust/agents.py` alone.

    generation: the enrolment the certificate was issued in, 1 when it names none. not_after_at: the caller is
    expired from that instant on, and TLS checks it at the handshake alone: look again at each request.
    cert_digest: SHA-256 of the certificate (DER); key_digest: SHA-256 of its public key (SubjectPublicKeyInfo, DER).
    """

    cn: Cn
    generation: Generation
    not_after_at: Instant
    cert_digest: Digest
    key_digest: Digest
