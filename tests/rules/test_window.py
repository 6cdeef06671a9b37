"""`not_before <= now < expires_at`, to the microsecond."""

from __future__ import annotations

import pytest

from broker.errors import Reason
from broker.rules.window import shut
from broker.wire.names import Instant


@pytest.mark.parametrize(
    ("now", "why"),
    [(9, Reason.NOT_YET_VALID), (10, None), (19, None), (20, Reason.EXPIRED), (21, Reason.EXPIRED)],
)
def test_the_window_is_open_from_its_first_instant_and_shut_at_its_last(now: int, why: Reason | None) -> None:
    assert shut(Instant(10), Instant(20), Instant(now)) is why
