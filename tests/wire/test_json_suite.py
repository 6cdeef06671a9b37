"""Other people's vectors: the parsing cases of JSONTestSuite, and the documents of RFC 8785's reference."""

from __future__ import annotations

import json

import pytest

from broker.errors import Malformed
from broker.wire import statement, strict_json
from broker.wire.names import Cn, DirectiveId, Generation, Instance, Instant
from broker.wire.statement import BoundAction, Statement, Target
from tests.wire import vectors

SUITE = vectors.load("json_test_suite")
JCS = vectors.load("jcs")
# What RFC 8259 lets through and a signed document must not hold: docs/formats/statement.md.
STRICTER = {
    "y_object_duplicated_key": "duplicate key a",
    "y_object_duplicated_key_and_value": "duplicate key a",
}
# What every reader may decide for itself: one that starts to take another of these gives bytes a second meaning.
TAKEN_OF_EITHER = {"i_number_double_huge_neg_exp", "i_number_real_underflow"}


def bytes_of(spelt: str | list[tuple[str, int]]) -> bytes:
    """A case's bytes: hexadecimal, or pieces of it, each so many times."""
    pieces = [(spelt, 1)] if isinstance(spelt, str) else spelt
    return b"".join(bytes.fromhex(piece) * times for piece, times in pieces)


CASES = [pytest.param(name, bytes_of(spelt), id=name) for name, spelt in SUITE["cases"]]


def name_of(document: dict[str, str]) -> str:
    return document["name"]


def why_refused(raw: bytes) -> str:
    """The words of the refusal, empty for a value; room for the largest case, so that size is not what refuses it."""
    try:
        strict_json.parse(raw, "case", max_bytes=1 << 20)
    except Malformed as refused:
        return refused.why
    return ""


def test_the_suite_is_whole() -> None:
    verdicts = [name[0] for name, _ in SUITE["cases"]]
    assert {verdict: verdicts.count(verdict) for verdict in "yni"} == {"y": 95, "n": 188, "i": 35}
    assert len({name for name, _ in SUITE["cases"]}) == 318


@pytest.mark.promise("P7")
@pytest.mark.parametrize(("name", "raw"), CASES)
def test_a_case_of_the_suite(name: str, raw: bytes) -> None:
    why = why_refused(raw)
    match name[0]:
        case "y":
            assert why == STRICTER.get(name, "")
        case "n":
            assert why
        case _:
            assert bool(why) != (name in TAKEN_OF_EITHER)


@pytest.mark.parametrize("document", JCS["documents"], ids=name_of)
def test_a_canonical_document_byte_for_byte(document: dict[str, str]) -> None:
    raw, canonical = bytes.fromhex(document["input"]), bytes.fromhex(document["canonical"])
    assert strict_json.canonical(json.loads(raw)) == canonical
    assert strict_json.canonical(json.loads(canonical)) == canonical
    # One of them has keys `f` and `F`, which is a document to RFC 8785 and not to us.
    assert why_refused(raw) == ("keys f and F differ only in case" if document["name"] == "structures" else "")


@pytest.mark.parametrize("document", [each for each in JCS["documents"] if each["name"] != "structures"], ids=name_of)
def test_a_statement_is_signed_with_its_arguments_in_that_form(document: dict[str, str]) -> None:
    raw, canonical = bytes.fromhex(document["input"]), bytes.fromhex(document["canonical"])
    at = Instant(0)
    action = BoundAction("tool_call", "files", "write_file", {"inner": json.loads(raw)})
    target = Target(Cn("worker-a"), Generation(1))
    signed = statement.encode(Statement(Instance("demo"), DirectiveId("d-1"), target, at, at, Instant(1), action))
    assert b'"args":{"inner":' + canonical + b"}," in signed
