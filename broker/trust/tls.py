"""TLS as the agent door offers it, and the broker's own certificate, which changes while it runs."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from broker.trust.authority import LIFETIME_S, CertificateAuthority
from broker.trust.unlinked import unlinked
from broker.wire.names import Instant
from broker.wire.times import SECOND


def server_context(authority: CertificateAuthority) -> ssl.SSLContext:
    """TLS 1.3 only; a client certificate is optional (enrolment has none), but one that is shown must be our own.

    It has no certificate of its own until `ServerCertificate.rotate`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority.pem)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    # A resumed session skips the certificate's dates: an expired certificate would go on working.
    context.num_tickets = 0
    context.options |= ssl.Options.OP_NO_TICKET
    # OpenSSL's other groups include finite fields: a hello that costs its sender nothing costs us 20 ms.
    context.set_ecdh_curve("prime256v1")
    context.set_alpn_protocols(["http/1.1"])
    return context


class ServerCertificate:
    """The broker's certificate for its own names: 24 hours, a new one with a new key at half-life, never on disk.

    names: DNS names and IP addresses under which agents reach the broker.
    """

    def __init__(self, authority: CertificateAuthority, names: Sequence[str]) -> None:
        self._authority = authority
        self._names = tuple(dict.fromkeys(names))
        self._renew_at = Instant(0)
        self._made_at = Instant(0)

    def rotate(self, context: ssl.SSLContext, now: Instant) -> bool:
        """Put a new certificate into the context if the present one is past half its life; says whether it did.

        Handshakes from then on show the new one, open connections go on. A clock that was set back counts as past.
        """
        if self._made_at <= now < self._renew_at:
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        issued = self._authority.issue_server(self._names, key.public_key(), now, x509.random_serial_number())
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # The library takes certificate and key from files alone.
        with unlinked(issued.pem.encode("ascii")) as certificate, unlinked(key_pem) as private:
            context.load_cert_chain(f"/dev/fd/{certificate}", f"/dev/fd/{private}")
        self._made_at = now
        self._renew_at = Instant(now + LIFETIME_S * SECOND // 2)
        return True
