"""An identity at its broker's door, and its refusals in the words of what this side knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker.wire.names import Cn, Instant
from broker.wire.times import show
from lever.agent import keys
from lever.agent.door import Door, context
from lever.agent.failures import Barred, NotReachable
from lever.agent.folder import IdentityFolder
from lever.agent.identity import Identity


def open_door(url: str, ca_pem: bytes, identity_file: Path | None) -> Door:
    """The door over TLS, its files read anew."""
    return Door(url, context(ca_pem, identity_file))


@contextmanager
def connected(folder: IdentityFolder, now: Instant) -> Iterator[Door]:
    """The door of the folder's identity. The same certificate serves to the end, also when it is renewed meanwhile:
    the broker repeats a lost answer to the same key only. Raises AgentFailure.
    """
    identity = folder.read()
    try:
        with open_door(identity.url, keys.certificates_pem(identity.ca), folder.file) as door:
            yield door
    except (Barred, NotReachable) as error:
        raise explained(error, identity, now) from error


def explained(error: Barred | NotReachable, identity: Identity, now: Instant) -> Barred | NotReachable:
    """A refusal, or a connection that broke off, told by what the certificate says: the broker never says why."""
    cn, end_at = identity.holder.cn, identity.holder.not_after_at
    if isinstance(error, NotReachable) and (not error.sent or now < end_at):
        return error
    if now >= end_at:
        return Barred(
            f"the certificate of {cn} ended at {show(end_at)} (here it is {show(now)}) and can't be renewed: "
            "only a new invite helps",
            hint=invite_hint(cn),
        )
    return Barred(
        f"the broker does not take this identity of {cn}: revoked, frozen, paused, replaced by a later enrolment, "
        f"or ended by the broker's clock ({error.text})",
        hint=invite_hint(cn),
    )


def invite_hint(cn: Cn) -> str:
    """How an agent gets in again."""
    return f"ask the operator for a new bundle (lever agent invite {cn}), then: lever agent enrol --bundle FILE"
