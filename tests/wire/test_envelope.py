"""Envelopes: each refusal names its field, and what is taken comes back whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.wire import envelope, times
from broker.wire.envelope import Envelope
from broker.wire.names import Instance, Instant
from tests.wire import samples
from tests.wire.samples import ENVELOPE, FUZZ

AT = times.parse("2026-01-01T00:00:00Z", "at")
SAMPLE = Envelope(Instance("demo"), "revoke", {"id": "d-1"}, AT)


@pytest.mark.promise("P7")
def test_signed_under_the_other_namespace() -> None:
    assert envelope.parse(samples.verified_admin(ENVELOPE)) == SAMPLE
    with pytest.raises(Malformed, match="signed under another namespace"):
        envelope.parse(samples.verified(ENVELOPE))


def test_a_statement_is_no_envelope_and_an_envelope_no_statement() -> None:
    assert samples.refusal(envelope.read, samples.STATEMENT).why == "unknown field"


def test_missing_params_are_no_params() -> None:
    assert envelope.read(ENVELOPE.replace(b'"params":{"id":"d-1"},', b"")).params == {}


def test_size_at_most_64_kib() -> None:
    room = 65536 - len(ENVELOPE)
    assert envelope.read(ENVELOPE + b" " * room) == SAMPLE
    assert "65537 bytes" in samples.refusal(envelope.read, ENVELOPE + b" " * (room + 1)).why


def test_the_error_for_a_param_can_not_carry_words() -> None:
    error = samples.refusal(envelope.read, ENVELOPE.replace(b'"id":"d-1"', b'"a\\n\\u202eb":1'))
    assert error.where == 'params."a\\n\\u202eb"'


def test_what_is_signed_is_canonical() -> None:
    raw = envelope.encode(SAMPLE)
    assert raw == json.dumps(json.loads(ENVELOPE), sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (Envelope(Instance("Demo"), "list", {}, AT), "instance"),
        (Envelope(Instance("demo"), "a-b", {}, AT), "op"),
        (Envelope(Instance("demo"), "list", {"x": "\ud800"}, AT), "value"),
        (Envelope(Instance("demo"), "list", {"x": "y" * 65536}, AT), "envelope"),
    ],
    ids=["instance", "op", "surrogate", "size"],
)
def test_nothing_is_encoded_that_would_be_refused(wrong: Envelope, where: str) -> None:
    with pytest.raises(Malformed) as caught:
        envelope.encode(wrong)
    assert caught.value.where == where


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ENVELOPES = st.builds(
    Envelope,
    st.from_regex(r"[a-z0-9]{1,63}", fullmatch=True).map(Instance),
    st.from_regex(r"[a-z_]{1,64}", fullmatch=True),
    st.dictionaries(TEXTS, TEXTS, max_size=4).filter(lambda params: len({k.casefold() for k in params}) == len(params)),
    st.integers(0, 4_000_000_000_000_000).map(Instant),
)


@FUZZ
@given(ENVELOPES)
def test_round_trip(said: Envelope) -> None:
    raw = envelope.encode(said)
    assert envelope.read(raw) == said


@FUZZ
@given(samples.hostile([ENVELOPE]))
def test_malformed_or_an_envelope(raw: bytes) -> None:
    said = samples.malformed_or(envelope.read, raw)
    assert said is None or isinstance(said, Envelope)
