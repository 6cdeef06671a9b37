"""Which agent a client certificate belongs to. TLS has checked the chain, the dates and the purpose before."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from broker.errors import Malformed, Untrusted
from broker.rules.identity import Ask, Issue
from broker.trust.authority import CertificateAuthority, Issued
from broker.trust.csr import UNREADABLE, AgentKey, common_name, key_digest, parse_csr
from broker.wire.caller import Caller
from broker.wire.names import Cn, Digest, Generation, Instance, Instant
from broker.wire.times import SECOND

_IDENTITY = re.compile(r"lever://([a-z0-9-]+)/agent/([a-z0-9-]+)/generation/([1-9][0-9]{0,8})")
_FIRST = Generation(1)


@dataclass(frozen=True, slots=True)
class AgentTrust:
    """Who an agent is and what certificate it gets, as the agent door needs it. Raises Untrusted."""

    instance: Instance
    ca: CertificateAuthority

    def caller_of(self, der: bytes) -> Caller:
        """See `caller_of`."""
        return caller_of(der, self.instance)

    def read_request(self, pem: str) -> tuple[Ask, Issue]:
        """What a certificate request asks for, and the hand that would issue it."""
        csr = parse_csr(pem.encode())

        def issue(cn: Cn, generation: Generation, now: Instant) -> Issued:
            return self.ca.issue(cn, generation, csr.public_key, now, x509.random_serial_number())

        return Ask(csr.cn or "", csr.key_digest), issue


@lru_cache(maxsize=4096)
def caller_of(der: bytes, instance: Instance) -> Caller:
    """Name and generation out of an agent's certificate, strictly: exactly one CN, at most one identity URI, of this
    very instance and for the same CN; without one the generation is 1. Raises Untrusted, whatever the bytes.

    It says nothing about time: look at not_after_at on each request.
    """
    try:
        certificate = x509.load_der_x509_certificate(der)
        key = certificate.public_key()
        if not isinstance(key, AgentKey):
            raise Untrusted("the certificate's key is of another kind than those that are certified")
        _check_purpose(certificate.extensions)
        cn = common_name(certificate.subject)
        return Caller(
            cn=cn,
            generation=_generation(certificate.extensions, instance, cn),
            not_after_at=Instant(int(certificate.not_valid_after_utc.timestamp()) * SECOND),
            cert_digest=Digest(hashlib.sha256(der).digest()),
            key_digest=key_digest(key),
        )
    except Malformed as error:
        raise Untrusted(f"the certificate's {error}") from error
    except UNREADABLE as error:
        raise Untrusted("not a certificate") from error


def _check_purpose(extensions: x509.Extensions) -> None:
    """The broker's own certificate comes from the same authority, and its name may look like an agent's."""
    found = {extension.oid: extension.value for extension in extensions}
    purposes = found.get(x509.ExtendedKeyUsage.oid)
    if not isinstance(purposes, x509.ExtendedKeyUsage) or list(purposes) != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        raise Untrusted("the certificate was not issued to an agent")
    constraints = found.get(x509.BasicConstraints.oid)
    if isinstance(constraints, x509.BasicConstraints) and constraints.ca:
        raise Untrusted("the certificate is an authority's, not an agent's")


def _generation(extensions: x509.Extensions, instance: Instance, cn: Cn) -> Generation:
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return _FIRST
    identities = names.get_values_for_type(x509.UniformResourceIdentifier)
    if not identities:
        return _FIRST
    found = _IDENTITY.fullmatch(identities[0])
    if len(identities) > 1 or not found:
        raise Untrusted("the certificate's identity is not lever://INSTANCE/agent/CN/generation/N")
    if found[1] != instance or found[2] != cn:
        raise Untrusted("the certificate's identity is of another instance or name")
    return Generation(int(found[3]))
