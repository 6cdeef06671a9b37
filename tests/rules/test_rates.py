"""The token bucket: never more than its rate allows, in any span of time, and never less than it promises."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.rules.rates import Bucket, TokenBucket, full
from broker.wire.names import Instant
from broker.wire.times import SECOND

BUCKETS = st.builds(
    TokenBucket, st.integers(1, 20), st.sampled_from([1 / 60, 0.1, 0.5, 30 / 60, 1.0, 7.0, 60 / 3600, 1e3, 1e6])
)
GAPS = st.lists(st.integers(0, 3) | st.integers(0, 10 * SECOND), max_size=60)


def allowed_at(bucket: TokenBucket, times: list[int]) -> list[int]:
    state: Bucket | None = None
    allowed = []
    for at in times:
        state, ok = bucket.take(state, Instant(at))
        if ok:
            allowed.append(at)
    return allowed


def times_of(gaps: list[int]) -> list[int]:
    times, at = [], 10**15
    for gap in gaps:
        at += gap
        times.append(at)
    return times


@pytest.mark.promise("P11")
@given(BUCKETS, GAPS)
def test_no_span_of_time_sees_more_than_the_capacity_and_the_refill(bucket: TokenBucket, gaps: list[int]) -> None:
    allowed = allowed_at(bucket, times_of(gaps))
    for first, begin in enumerate(allowed):
        for last in range(first, len(allowed)):
            span_s = Fraction(allowed[last] - begin, SECOND)
            assert last - first + 1 <= bucket.capacity + span_s * Fraction(bucket.refill_per_s)


@pytest.mark.promise("P11")
@given(BUCKETS)
def test_nor_for_the_caller_who_takes_each_token_the_moment_it_comes(bucket: TokenBucket) -> None:
    state: Bucket | None = None
    begin = now = Instant(10**15)
    for count in range(1, 100):
        now = bucket.ready_at(state, now)
        state, _ = bucket.take(state, now)
        assert count <= bucket.capacity + Fraction(now - begin, SECOND) * Fraction(bucket.refill_per_s)


@given(BUCKETS, GAPS)
def test_a_token_is_there_exactly_from_ready_at_on(bucket: TokenBucket, gaps: list[int]) -> None:
    state: Bucket | None = None
    now = Instant(10**15)
    for gap in gaps:
        now = Instant(now + gap)
        ready = bucket.ready_at(state, now)
        assert ready >= now
        if ready > now:
            assert bucket.take(state, Instant(ready - 1))[1] is False
        state, ok = bucket.take(state, ready)
        assert ok
        now = ready


@given(BUCKETS, GAPS)
def test_asking_in_vain_costs_nothing(bucket: TokenBucket, gaps: list[int]) -> None:
    state: Bucket | None = None
    for at in times_of(gaps):
        now = Instant(at)
        ready = bucket.ready_at(state, now)
        state, ok = bucket.take(state, now)
        assert ok or bucket.ready_at(state, now) == ready


@given(BUCKETS, st.lists(st.integers(-10 * SECOND, 10 * SECOND), max_size=40))
def test_a_clock_that_goes_back_gives_nothing_away(bucket: TokenBucket, steps: list[int]) -> None:
    state: Bucket | None = None
    now = newest = oldest = 10**15
    count = 0
    for step in steps:
        now += step
        newest, oldest = max(newest, now), min(oldest, now)
        state, ok = bucket.take(state, Instant(now))
        count += ok
    assert count <= bucket.capacity + Fraction(newest - oldest, SECOND) * Fraction(bucket.refill_per_s)


@pytest.mark.promise("P11")
def test_the_edge_of_a_minute_doubles_nothing() -> None:
    bucket = TokenBucket(30, 30 / 60)
    late = [59 * SECOND + i for i in range(30)]
    early = [60 * SECOND + i for i in range(30)]
    assert len(allowed_at(bucket, late + early)) == 30


def test_a_full_bucket_may_be_forgotten() -> None:
    bucket = TokenBucket(2, 1.0)
    state, _ = bucket.take(None, Instant(0))
    assert not full(state, Instant(SECOND - 1))
    assert full(state, Instant(SECOND))
    assert allowed_at(bucket, [SECOND] * 3) == [SECOND] * 2


@given(BUCKETS, st.integers(1, 10**10), st.integers(1, 40))
def test_a_clock_that_is_set_back_costs_a_refill_and_gives_nothing_twice(
    bucket: TokenBucket, back: int, taken: int
) -> None:
    state: Bucket | None = None
    ahead = Instant(10**15 + back)
    for _ in range(taken):
        state, _ = bucket.take(state, ahead)
    now = Instant(10**15)
    refill = -(-SECOND // Fraction(bucket.refill_per_s))
    assert bucket.ready_at(state, now) - now <= refill
    given_out = 0
    for _ in range(bucket.capacity + 1):
        state, ok = bucket.take(state, now)
        given_out += ok
    assert given_out <= bucket.capacity
