"""Request bodies: shapes are refused here, contents are not looked at."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire import bodies
from broker.wire.bodies import ConsumeBody, EnrolBody, SignedPair
from tests.wire import samples
from tests.wire.samples import FUZZ, PAIR, SIGNATURES, STATEMENT

Parse = Callable[[bytes], object]
statement_pair = partial(bodies.signed_pair, field="statement")
envelope_pair = partial(bodies.signed_pair, field="envelope")
PARSERS: dict[str, tuple[Parse, list[bytes]]] = {
    "statement pair": (statement_pair, [PAIR]),
    "envelope pair": (envelope_pair, [PAIR.replace(b'"statement"', b'"envelope"')]),
    "consume": (bodies.consume_body, [b'{"id":"d-1"}', b'{"id":"d-1","attempt":"a-1"}']),
    "check": (bodies.check_body, [b'{"id":"d-1"}']),
    "enrol": (bodies.enrol_body, [b'{"ticket":"tttt","csr":"-----BEGIN"}']),
    "renew": (bodies.csr_body, [b'{"csr":"-----BEGIN"}']),
}


@pytest.mark.parametrize(
    ("parse", "raw", "value"),
    [
        (statement_pair, PAIR, SignedPair(STATEMENT, SIGNATURES[0])),
        (bodies.consume_body, b'{"id":"d-1"}', ConsumeBody("d-1", None)),
        (bodies.consume_body, b'{"attempt":"a.b","id":"d-1"}', ConsumeBody("d-1", "a.b")),
        (bodies.consume_body, b'{"id":"no id: \\u202e/../"}', ConsumeBody("no id: \u202e/../", None)),
        (bodies.consume_body, b'{"id":""}', ConsumeBody("", None)),
        (bodies.consume_body, b'{"id":"%s"}' % (b"x" * 256), ConsumeBody("x" * 256, None)),
        (bodies.check_body, b'{"id":"no id"}', "no id"),
        (bodies.enrol_body, b'{"ticket":"t","csr":"c"}', EnrolBody("t", "c")),
        (bodies.csr_body, b'{"csr":"c"}', "c"),
    ],
)
def test_takes(parse: Parse, raw: bytes, value: object) -> None:
    assert parse(raw) == value


def pair(statement: str = "YQ==", signature: str = "YQ==") -> bytes:
    return json.dumps({"statement": statement, "signature": signature}).encode()


def encoded(size: int) -> str:
    return base64.b64encode(b"a" * size).decode()


@pytest.mark.parametrize(
    ("parse", "raw", "where"),
    [
        (statement_pair, b'{"signature":"YQ=="}', "statement"),
        (statement_pair, b'{"statement":"YQ=="}', "signature"),
        (statement_pair, PAIR.replace(b'"statement"', b'"envelope"'), "envelope"),
        (envelope_pair, PAIR, "statement"),
        (statement_pair, pair(statement=""), "statement"),
        (statement_pair, pair(signature=""), "signature"),
        (statement_pair, pair(statement="YQ"), "statement"),
        (statement_pair, pair(statement="YQ=="[:3]), "statement"),
        (statement_pair, pair(statement="YR=="), "statement"),
        (statement_pair, pair(statement="YQ==\n"), "statement"),
        (statement_pair, pair(statement=" YQ=="), "statement"),
        (statement_pair, pair(statement="YQ==YQ=="), "statement"),
        (statement_pair, pair(statement="-_-_"), "statement"),
        (statement_pair, pair(statement="\u00e9\u00e9\u00e9\u00e9"), "statement"),
        (statement_pair, b'{"statement":1,"signature":"YQ=="}', "statement"),
        (statement_pair, b'{"statement":"YQ==","signature":null}', "signature"),
        (statement_pair, pair(statement=encoded(65537)), "statement"),
        (statement_pair, pair(signature=encoded(16385)), "signature"),
        (statement_pair, pair() + b" " * bodies.PAIR_MAX_BYTES, "body"),
        (statement_pair, b"[]", "body"),
        (bodies.consume_body, b"{}", "id"),
        (bodies.consume_body, b'{"directive_id":"d-1"}', "directive_id"),
        (bodies.consume_body, b'{"id":1}', "id"),
        (bodies.consume_body, b'{"id":null}', "id"),
        (bodies.consume_body, b'{"id":["d-1"]}', "id"),
        (bodies.consume_body, b'{"id":"d-1","ID":"d-2"}', "body"),
        (bodies.consume_body, b'{"id":"d-1","id":"d-1"}', "body"),
        (bodies.consume_body, b'{"id":"%s"}' % (b"x" * 257), "id"),
        (bodies.consume_body, b'{"id":"d-1","attempt":""}', "attempt"),
        (bodies.consume_body, b'{"id":"d-1","attempt":null}', "attempt"),
        (bodies.consume_body, b'{"id":"d-1","attempt":"a b"}', "attempt"),
        (bodies.consume_body, b'{"id":"d-1","attempt":"%s"}' % (b"x" * 65), "attempt"),
        (bodies.consume_body, b'{"id":"d-1","why":"x"}', "why"),
        (bodies.consume_body, b'{"id":"d-1"}' + b" " * 4096, "body"),
        (bodies.consume_body, b'"d-1"', "body"),
        (bodies.check_body, b'{"id":"d-1","attempt":"a"}', "attempt"),
        (bodies.check_body, b"null", "body"),
        (bodies.enrol_body, b'{"ticket":"t"}', "csr"),
        (bodies.enrol_body, b'{"csr":"c"}', "ticket"),
        (bodies.enrol_body, b'{"ticket":"","csr":"c"}', "ticket"),
        (bodies.enrol_body, b'{"ticket":"%s","csr":"c"}' % (b"t" * 257), "ticket"),
        (bodies.enrol_body, b'{"ticket":"t","csr":"c","cn":"worker-a"}', "cn"),
        (bodies.csr_body, b'{"csr":""}', "csr"),
        (bodies.csr_body, b'{"csr":["c"]}', "csr"),
        (bodies.csr_body, b'{"csr":"%s"}' % (b"c" * 16385), "csr"),
    ],
)
def test_refuses(parse: Parse, raw: bytes, where: str) -> None:
    assert samples.refusal(parse, raw).where == where


def test_the_largest_pair_that_the_parts_allow_fits_the_body() -> None:
    whole = bodies.signed_pair(pair(encoded(65536), encoded(16384)), "statement")
    assert (len(whole.raw), len(whole.signature)) == (65536, 16384)


@FUZZ
@given(st.binary(min_size=1, max_size=200), st.binary(min_size=1, max_size=200))
def test_a_pair_carries_any_bytes_unchanged(raw: bytes, signature: bytes) -> None:
    body = pair(base64.b64encode(raw).decode(), base64.b64encode(signature).decode())
    assert bodies.signed_pair(body, "statement") == SignedPair(raw, signature)


@pytest.mark.parametrize("name", PARSERS)
@FUZZ
@given(data=st.data())
def test_malformed_or_a_value(name: str, data: Any) -> None:
    parse, valid = PARSERS[name]
    samples.malformed_or(parse, data.draw(samples.hostile(valid)))
