"""One window rule, for delivery and for consume: `not_before <= now < expires_at`."""

from __future__ import annotations

from broker.errors import Reason
from broker.wire.names import Instant


def shut(not_before_at: Instant, expires_at: Instant, now: Instant) -> Reason | None:
    """Why the window is shut now; None while it is open."""
    if now >= expires_at:
        return Reason.EXPIRED
    if now < not_before_at:
        return Reason.NOT_YET_VALID
    return None
