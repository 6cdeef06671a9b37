"""Times: one grammar, real dates only, and no instant that could not be shown again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.wire import times
from broker.wire.names import Instant
from tests.wire.samples import FUZZ

GRAMMAR = r"(0001|1970|2026|9999)-(0[1-9]|1[0-2])-(01|28|31)T(00|23):(00|59):\d\d(\.\d{1,9})?(Z|[+-](00|23):\d\d)"
AT = Instant(1_769_850_000_000_000)


@pytest.mark.parametrize(
    ("text", "after_us"),
    [
        ("2026-01-31T09:00:00Z", 0),
        ("2026-01-31T09:00:00+00:00", 0),
        ("2026-01-31T09:00:00-00:00", 0),
        ("2026-01-31T10:30:00+01:30", 0),
        ("2026-01-30T23:00:00-10:00", 0),
        ("2026-02-01T08:59:00+23:59", 0),
        ("2026-01-31T09:00:00.5Z", 500_000),
        ("2026-01-31T09:00:00.000001Z", 1),
        ("2026-01-31T09:00:00.123456Z", 123_456),
        # Finer than a microsecond rounds up, so that both ends of a window mean what they say.
        ("2026-01-31T09:00:00.000000001Z", 1),
        ("2026-01-31T09:00:00.123456001+00:00", 123_457),
        ("2026-01-31T09:00:00.999999999Z", 1_000_000),
    ],
)
def test_takes(text: str, after_us: int) -> None:
    assert times.parse(text, "at") == AT + after_us


@pytest.mark.promise("P7")
@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T09:00:00",
        "2026-01-31T09:00Z",
        "2026-01-31",
        "2026-01-31 09:00:00Z",
        "2026-01-31t09:00:00Z",
        "2026-01-31T09:00:00z",
        "2026-1-31T09:00:00Z",
        "2026-01-31T9:00:00Z",
        "26-01-31T09:00:00Z",
        "+2026-01-31T09:00:00Z",
        "12026-01-31T09:00:00Z",
        "2026-01-31T09:00:00,5Z",
        "2026-01-31T09:00:00.Z",
        "2026-01-31T09:00:00.1234567890Z",
        "2026-01-31T09:00:00+0100",
        "2026-01-31T09:00:00+01",
        "2026-01-31T09:00:00+1:00",
        "2026-01-31T09:00:00+24:00",
        "2026-01-31T09:00:00+01:60",
        "2026-01-31T09:00:00\u221201:00",
        "2026-01-31T09:00:00ZZ",
        "2026-01-31T09:00:00Z\n",
        " 2026-01-31T09:00:00Z",
        "2026-01-31T09:00:00 Z",
        "20260131T090000Z",
        "2026-W05-6T09:00:00Z",
        "2026-031T09:00:00Z",
        "\u0662\u0660\u0662\u0666-01-31T09:00:00Z",
        "2026-00-31T09:00:00Z",
        "2026-13-31T09:00:00Z",
        "2026-01-00T09:00:00Z",
        "2026-01-32T09:00:00Z",
        "2026-02-29T09:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T09:60:00Z",
        "2026-01-31T09:00:60Z",
        "2026-06-30T23:59:60Z",
        "0000-01-01T00:00:00Z",
        "",
        "now",
        1_769_850_000,
        1_769_850_000.5,
        True,
        None,
        ["2026-01-31T09:00:00Z"],
    ],
    ids=repr,
)
def test_refuses(text: object) -> None:
    with pytest.raises(Malformed) as caught:
        times.parse(text, "expires_at")
    assert caught.value.where == "expires_at"


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:59.9999999Z"],
)
def test_refuses_a_time_whose_moment_in_utc_has_no_four_digit_year(text: str) -> None:
    with pytest.raises(Malformed, match="at"):
        times.parse(text, "at")


@pytest.mark.parametrize(
    ("after_us", "text"),
    [(0, "2026-01-31T09:00:00Z"), (500_000, "2026-01-31T09:00:00.500000Z"), (1, "2026-01-31T09:00:00.000001Z")],
)
def test_shows(after_us: int, text: str) -> None:
    assert times.show(Instant(AT + after_us)) == text


@FUZZ
@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_shown_is_read_back(moment: datetime) -> None:
    at = times.parse(moment.isoformat(), "at")
    assert times.parse(times.show(at), "at") == at
    assert datetime.fromisoformat(times.show(at)) == moment


@FUZZ
@given(st.text("0123456789-+:.TZ", max_size=36) | st.from_regex(GRAMMAR, fullmatch=True))
def test_malformed_or_an_instant_that_can_be_shown(text: str) -> None:
    try:
        at = times.parse(text, "at")
    except Malformed:
        return
    assert times.parse(times.show(at), "at") == at
