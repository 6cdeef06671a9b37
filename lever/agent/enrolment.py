"""Enrol and renew: the key on disk first, then the request, then the whole identity replaced in one step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from broker.errors import Malformed
from broker.wire.bundle import Bundle
from broker.wire.names import Cn, Instant
from lever.agent import keys
from lever.agent.failures import Barred, NotReachable, Occupied, Unverified
from lever.agent.folder import IdentityFolder, Purpose
from lever.agent.identity import Identity
from lever.agent.session import explained, invite_hint, open_door

_AGAIN = "run the same command again within a minute: it asks with the same key, and a spent ticket then still answers"


class Outcome(StrEnum):
    """What an enrolment or renewal came to: `unchanged` when there was nothing to do."""

    ENROLLED = "enrolled"
    RENEWED = "renewed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Done:
    """How it ended, and the identity that the folder holds now."""

    outcome: Outcome
    identity: Identity


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a new certificate will stand in: all of an identity but the certificate and its key."""

    url: str
    ticket_digest: str
    ca: tuple[x509.Certificate, ...]
    cn: Cn

    @property
    def ca_pem(self) -> bytes:
        return keys.certificates_pem(self.ca)


def enrol(folder: IdentityFolder, bundle: Bundle, *, now: Instant) -> Done:
    """Redeem a bundle's ticket.

    Run again after a lost answer it asks with the same key and gets the same certificate. What the folder held stays
    as it is until the new identity is complete. Raises AgentFailure; Malformed for a bundle that can't be used.
    """
    frame = _frame_of(bundle)
    with folder.locked():
        current = folder.find()
        if current is not None and current.ticket_digest == frame.ticket_digest:
            return Done(Outcome.UNCHANGED, current)
        if current is not None:
            _make_way(folder, current, frame, now)
        key = folder.next_key(Purpose.ENROL, frame.ticket_digest)
        try:
            with open_door(frame.url, frame.ca_pem, None) as door:
                pem = door.enrol(bundle.ticket, keys.csr_pem(key, frame.cn))
        except Barred as error:
            raise _ticket_refused(frame.cn, current, now) from error
        except NotReachable as error:
            raise NotReachable(error.text, sent=error.sent, hint=_AGAIN if error.sent else error.hint) from error
        new = _accept(pem, key, frame)
        folder.install(new)
    return Done(Outcome.ENROLLED, new)


def renew(folder: IdentityFolder, *, now: Instant, force: bool = False) -> Done:
    """Ask for the certificate that follows, once half of this one's life is over; with force, at once.

    Raises AgentFailure.
    """
    seen = folder.read()
    if not force and now < half_life(seen):
        return Done(Outcome.UNCHANGED, seen)
    with folder.locked():
        current = folder.read()
        if current.holder.cert_digest != seen.holder.cert_digest:
            return Done(Outcome.UNCHANGED, current)  # another process renewed while this one waited
        frame = _Frame(current.url, current.ticket_digest, current.ca, current.holder.cn)
        key = folder.next_key(Purpose.RENEW, current.holder.cert_digest.hex())
        try:
            with open_door(frame.url, frame.ca_pem, folder.file) as door:
                pem = door.renew(keys.csr_pem(key, frame.cn))
        except (Barred, NotReachable) as error:
            raise explained(error, current, now) from error
        new = _accept(pem, key, frame)
        folder.install(new)
    return Done(Outcome.RENEWED, new)


def half_life(identity: Identity) -> Instant:
    """When an identity is to be renewed."""
    begin, end = identity.holder.not_before_at, identity.holder.not_after_at
    return Instant(begin + (end - begin) // 2)


def _frame_of(bundle: Bundle) -> _Frame:
    ca = keys.read_certificates(bundle.broker_ca.encode(), "bundle.broker_ca")
    return _Frame(bundle.broker_url, keys.text_digest(bundle.ticket), ca, bundle.agent_cn)


def _make_way(folder: IdentityFolder, current: Identity, frame: _Frame, now: Instant) -> None:
    """A living identity gives way to a later one of the same name and CA only; a dead one to any. Raises Occupied."""
    same_name = current.holder.cn == frame.cn
    if now >= current.holder.not_after_at or (same_name and set(frame.ca) & set(current.ca)):
        return
    raise Occupied(
        f"{folder.path} holds the living identity of {current.holder.cn} at {current.url}; "
        f"this bundle is for {frame.cn} at {frame.url}" + (", which has another CA" if same_name else ""),
        hint=f"name another folder with --identity DIR; or, if that identity is of no more use: rm '{folder.file}'",
    )


def _ticket_refused(cn: Cn, current: Identity | None, now: Instant) -> Barred:
    """The broker gives one answer for every bad ticket, so these words name each thing that it may be."""
    kept = ""
    if current is not None and now < current.holder.not_after_at:
        kept = f"; the identity of {current.holder.cn} that was here is kept"
    return Barred(
        f"the broker refused to enrol {cn}: the ticket was used, has expired (10 minutes unless the operator said "
        f"otherwise), was replaced by a later invite, or is for another name{kept}",
        hint=invite_hint(cn),
    )


def _accept(pem: bytes, key: ec.EllipticCurvePrivateKey, frame: _Frame) -> Identity:
    """The identity that an answer's certificate makes: our key, our name, the instance's CA. Raises Unverified."""
    try:
        certificates = keys.read_certificates(pem, "certificate")
        if len(certificates) != 1:
            raise Malformed("certificate", f"expected one, found {len(certificates)}")
        return Identity.join(
            url=frame.url, ticket_digest=frame.ticket_digest, leaf=certificates[0], key=key, ca=frame.ca, cn=frame.cn
        )
    except Malformed as error:
        raise Unverified(
            f"the broker answered with a certificate that can't be used: {error}",
            hint=f"tell the operator; nothing was changed here. Then {invite_hint(frame.cn)}",
        ) from error
