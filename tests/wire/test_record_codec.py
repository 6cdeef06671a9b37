"""Records: every kind comes back as it went, in one form of bytes alone."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import Malformed, Reason
from broker.wire import record_codec, records
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instant
from broker.wire.records import Fact, PayloadRef, Record
from tests.wire import samples
from tests.wire.samples import FUZZ

FACTS = typing.get_args(Fact)
DIGESTS = st.binary(min_size=32, max_size=32).map(Digest)
COUNTS = st.integers(0, 2**63 - 1)
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999).map(Instant)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_BY_TYPE: dict[object, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: COUNTS,
    Instant: TIMES,
    bytes: DIGESTS,
    tuple[str, ...]: st.lists(TEXTS, max_size=3).map(tuple),
}


def _plain(annotation: Any) -> object:
    while annotation is not Instant and hasattr(annotation, "__supertype__"):
        annotation = annotation.__supertype__
    return annotation


def facts(cls: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{f.name: _BY_TYPE[_plain(hints[f.name])] for f in dataclasses.fields(cls)})


REFS = st.builds(PayloadRef, DIGESTS, COUNTS, COUNTS, COUNTS)
RECORDS = st.builds(
    Record,
    COUNTS,
    TIMES,
    DIGESTS,
    st.lists(REFS, max_size=2).map(tuple),
    st.one_of(*map(facts, FACTS)),
    COUNTS,
)
REF = PayloadRef(Digest(bytes(range(32))), 1, 40, 500)
SAMPLES = [
    Record(1, Instant(5), Digest(bytes(32)), (), records.BrokerStopped()),
    Record(2, Instant(6), Digest(bytes(32)), (), records.DirectivesExpired(("a", "b"))),
    Record(
        3,
        Instant(7),
        Digest(b"\xff" * 32),
        (REF, REF),
        records.DirectiveConsumed(DirectiveId("d-1"), Cn("worker-a"), Generation(3), Digest(bytes(32)), ""),
        rest=2,
    ),
    Record(4, Instant(8), Digest(bytes(32)), (), records.DirectiveRevoked(DirectiveId("d-1"), Fingerprint("SHA256:x"))),
]
ENCODED = [record_codec.encode(record) for record in SAMPLES]


@pytest.mark.parametrize("cls", FACTS, ids=lambda cls: cls.__name__)
@settings(FUZZ, max_examples=25)
@given(data=st.data())
def test_every_kind_comes_back(cls: type, data: Any) -> None:
    record = dataclasses.replace(SAMPLES[0], fact=data.draw(facts(cls)))
    assert record_codec.decode(record_codec.encode(record)) == record


@FUZZ
@given(RECORDS)
def test_every_record_comes_back(record: Record) -> None:
    assert record_codec.decode(record_codec.encode(record)) == record


def test_kinds_are_named_in_the_past_tense_of_their_class() -> None:
    kinds = [record_codec.kind_of(record.fact) for record in SAMPLES]
    assert kinds == ["broker_stopped", "directives_expired", "directive_consumed", "directive_revoked"]
    assert len({cls.__name__.lower() for cls in FACTS}) == len(FACTS)


def test_layout() -> None:
    assert cbor2.loads(ENCODED[2]) == [
        1,
        3,
        7,
        b"\xff" * 32,
        "directive_consumed",
        [[REF.digest, 1, 40, 500]] * 2,
        {"id": "d-1", "cn": "worker-a", "generation": 3, "key_digest": bytes(32), "attempt": "", "repeat_until_at": 0},
        2,
    ]


def array(**changed: Any) -> bytes:
    """The third sample with one of its eight places changed."""
    names = ("format", "seq", "at", "prev", "kind", "refs", "body", "rest")
    places = dict(zip(names, cbor2.loads(ENCODED[2]), strict=True))
    return cbor2.dumps(list((places | changed).values()), canonical=True)


def body(**changed: Any) -> bytes:
    """The third sample with one field of its fact changed."""
    return array(body=cbor2.loads(ENCODED[2])[6] | changed)


@pytest.mark.promise("P27")
@pytest.mark.parametrize(
    ("raw", "where"),
    [
        (b"", "record"),
        (ENCODED[2] + b"\x00", "record"),
        (ENCODED[2] + ENCODED[2], "record"),
        (ENCODED[2][:-1], "record"),
        (cbor2.dumps({}), "record"),
        (cbor2.dumps([1, 2, 3]), "record"),
        (array(format=2), "record.format"),
        (array(format=True), "record.format"),
        (array(format=1.0), "record.format"),
        (array(seq=-1), "record"),
        (array(seq=True), "record"),
        (array(seq=3.0), "record"),
        (array(seq=2**63), "record"),
        (array(seq=2**80), "record"),
        (array(at="7"), "record"),
        (array(at=253_402_300_800_000_000), "record"),
        (array(at=-62_135_596_800_000_001), "record"),
        (body(repeat_until_at=253_402_300_800_000_000), "record.body.repeat_until_at"),
        (array(prev=bytes(31)), "record"),
        (array(prev="x" * 32), "record"),
        (array(prev=None), "record"),
        (array(kind="directive_stolen"), "record.kind"),
        (array(kind=b"directive_consumed"), "record.kind"),
        (array(kind=7), "record.kind"),
        (array(kind=[]), "record.kind"),
        (array(rest=-1), "record"),
        (array(rest=True), "record"),
        (array(rest=2**63), "record"),
        (array(refs={}), "record.payloads"),
        (array(refs=[REF.digest]), "record.payloads"),
        (array(refs=[[REF.digest, 1, 2]]), "record.payloads"),
        (array(refs=[[bytes(31), 1, 2, 3]]), "record.payloads"),
        (array(refs=[[REF.digest, -1, 2, 3]]), "record.payloads"),
        (array(refs=[[REF.digest, 1, True, 3]]), "record.payloads"),
        (array(body=[]), "record.body"),
        (array(body={}), "record.body"),
        (body(more=1), "record.body"),
        (body(id=1), "record.body.id"),
        (body(id=None), "record.body.id"),
        (body(id=b"d-1"), "record.body.id"),
        (body(generation=3.0), "record.body.generation"),
        (body(generation=True), "record.body.generation"),
        (body(generation="3"), "record.body.generation"),
        (body(generation=float("nan")), "record.body.generation"),
        (body(key_digest="x"), "record.body.key_digest"),
        # The same values in other bytes: a longer integer, no definite length, a tag, keys in another order.
        (ENCODED[2].replace(b"\x88\x01\x03", b"\x88\x01\x18\x03", 1), "record"),
        (b"\x9f" + ENCODED[2][1:] + b"\xff", "record"),
        (b"\xd9\xd9\xf7" + ENCODED[2], "record"),
        (cbor2.dumps([*cbor2.loads(ENCODED[2])[:6], dict(reversed(cbor2.loads(ENCODED[2])[6].items())), 2]), "record"),
        (ENCODED[0][:-2] + b"\xa2\x61a\x01\x61a\x01\x00", "record"),
        (b"\x81" * 200 + b"\x00", "record"),
        (b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "record"),
        (b"\xd8\x1c\x88\x01" + b"\xd8\x1d\x00" * 6, "record"),
    ],
    ids=range(53),
)
def test_refuses(raw: bytes, where: str) -> None:
    assert samples.refusal(record_codec.decode, raw).where == where


def test_the_samples_that_the_refusals_start_from_are_read() -> None:
    assert record_codec.decode(array()) == SAMPLES[2]
    assert record_codec.decode(body()) == SAMPLES[2]


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_digest_has_32_bytes_in_a_fact_too(size: int) -> None:
    assert samples.refusal(record_codec.decode, body(key_digest=bytes(size))).where == "record.body.key_digest"


@FUZZ
@given(samples.hostile(ENCODED))
def test_malformed_or_the_one_record_with_these_bytes(raw: bytes) -> None:
    record = samples.malformed_or(record_codec.decode, raw)
    if isinstance(record, Record):
        assert record_codec.encode(record) == raw


WRONG: dict[object, list[object]] = {
    str: [b"x", 1, None],
    int: [2**63, -(2**63), True, 1.0, "1"],
    Instant: [253_402_300_800_000_000, -62_135_596_800_000_001, True, 1.0, "1"],
    bytes: [b"", b"x" * 31, b"x" * 33, "x" * 32],
    tuple[str, ...]: [(1,), "ab", None],
}
FIELDS = [(cls, field.name) for cls in FACTS for field in dataclasses.fields(cls)]


@pytest.mark.parametrize(("cls", "name"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
@given(st.data())
@settings(max_examples=5)
def test_nothing_is_written_that_could_not_be_read_again(cls: type, name: str, data: Any) -> None:
    good = data.draw(facts(cls))
    for wrong in WRONG[_plain(typing.get_type_hints(cls)[name])]:
        with pytest.raises(Malformed) as refused:
            record_codec.encode(
                Record(1, Instant(5), Digest(bytes(32)), (), dataclasses.replace(good, **{name: wrong}))
            )
        assert refused.value.where == f"record.body.{name}"


@pytest.mark.parametrize("at", [2**63, 253_402_300_800_000_000, True])
def test_a_time_beyond_the_format_is_not_written(at: int) -> None:
    with pytest.raises(Malformed, match=r"record\.at"):
        record_codec.encode(Record(1, Instant(at), Digest(bytes(32)), (), records.BrokerStopped()))


def test_an_enumerations_word_is_written_as_text() -> None:
    fact = records.DirectiveInvalidated(DirectiveId("d-1"), Reason.KEY_NOT_STANDING)
    read = record_codec.decode(record_codec.encode(Record(1, Instant(5), Digest(bytes(32)), (), fact)))
    assert read.fact == fact
