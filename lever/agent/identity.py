"""The identity: one file that holds what must never disagree. docs/formats/identity.md describes it.

The agent's certificate and key, the broker's address and its CA stand in one file: one rename replaces them all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from broker.errors import Malformed
from broker.wire.names import Cn
from lever.agent import keys
from lever.agent.keys import Holder

_FORMAT = re.compile(
    rb"lever-identity: (?P<version>[0-9]{1,6})\n"
    rb"broker-url: (?P<url>https://[A-Za-z0-9.:\[\]-]{1,300})\n"
    rb"ticket-digest: (?P<ticket>[0-9a-f]{64})\n"
    rb"(?P<leaf>-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n)"
    rb"(?P<key>-----BEGIN PRIVATE KEY-----\n[A-Za-z0-9+/=\n]+-----END PRIVATE KEY-----\n)"
    rb"(?P<ca>(?:-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n)+)"
)
_VERSION = re.compile(rb"lever-identity: ([0-9]{1,6})\n")


@dataclass(frozen=True, slots=True)
class Identity:
    """One enrolment of an agent. ticket_digest: SHA-256 (hex) of the ticket that it was enrolled with."""

    url: str
    ticket_digest: str
    leaf: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    ca: tuple[x509.Certificate, ...]
    holder: Holder

    @classmethod
    def join(
        cls,
        *,
        url: str,
        ticket_digest: str,
        leaf: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
        ca: tuple[x509.Certificate, ...],
        cn: Cn | None = None,
    ) -> Self:
        """An identity of parts that belong together: key, issuer, and the name if one is given. Raises Malformed."""
        keys.check_pair(leaf, key)
        keys.check_issuer(leaf, ca)
        holder = keys.holder(leaf)
        if cn is not None and holder.cn != cn:
            raise Malformed("certificate", f"is for {holder.cn}, expected {cn}")
        return cls(url, ticket_digest, leaf, key, ca, holder)


def encode(identity: Identity) -> bytes:
    """The file's bytes."""
    head = f"lever-identity: 1\nbroker-url: {identity.url}\nticket-digest: {identity.ticket_digest}\n"
    return (
        head.encode("ascii")
        + keys.certificates_pem([identity.leaf])
        + keys.key_pem(identity.key)
        + keys.certificates_pem(identity.ca)
    )


def parse(raw: bytes) -> Identity:
    """An identity from its file's bytes. Raises Malformed."""
    version = _VERSION.match(raw)
    if version and int(version[1]) != 1:
        raise Malformed("identity.pem", f"is of format {int(version[1])}, this lever knows format 1")
    found = _FORMAT.fullmatch(raw)
    if not found:
        raise Malformed("identity.pem", "is not an identity file, or only part of one")
    (leaf,) = keys.read_certificates(found["leaf"], "identity.pem")
    return Identity.join(
        url=found["url"].decode("ascii"),
        ticket_digest=found["ticket"].decode("ascii"),
        leaf=leaf,
        key=keys.read_key(found["key"], "identity.pem"),
        ca=keys.read_certificates(found["ca"], "identity.pem"),
    )
