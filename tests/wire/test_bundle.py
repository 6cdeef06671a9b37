"""The bundle of an invited agent."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from broker.errors import Malformed
from broker.wire import bundle
from broker.wire.bundle import Bundle
from broker.wire.names import Cn
from tests.wire import samples
from tests.wire.samples import BUNDLE, FUZZ, PEM

SAMPLE = Bundle("t" * 43, PEM, "https://broker.example:8443", Cn("worker-a"))


def test_round_trip() -> None:
    assert bundle.parse(bundle.encode(SAMPLE)) == SAMPLE
    assert bundle.parse(BUNDLE) == SAMPLE


@pytest.mark.parametrize(
    "url",
    [
        "https://broker.example",
        "https://127.0.0.1:8443",
        "https://[::1]:8443",
        "https://[fe80::1]",
        "https://Broker-1.example:65535",
    ],
)
def test_takes_an_address(url: str) -> None:
    assert bundle.parse(bundle.encode(replace(SAMPLE, broker_url=url))).broker_url == url


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ticket", ""),
        ("ticket", "t" * 15),
        ("ticket", "t" * 257),
        ("ticket", "t" * 42 + "+"),
        ("ticket", "t" * 42 + "\n"),
        ("ticket", 7),
        ("broker_ca", ""),
        ("broker_ca", "x" + PEM),
        ("broker_ca", PEM + "x"),
        ("broker_ca", PEM.replace("CERTIFICATE", "PRIVATE KEY")),
        ("broker_ca", PEM + PEM.replace("CERTIFICATE", "PRIVATE KEY")),
        ("broker_ca", PEM.rstrip("\n") + PEM),
        ("broker_ca", None),
        ("broker_url", "http://broker.example:8443"),
        ("broker_url", "https://broker.example:8443/"),
        ("broker_url", "https://broker.example:8443/x"),
        ("broker_url", "https://a@broker.example:8443"),
        ("broker_url", "https://broker.example:8443?x"),
        ("broker_url", "https://broker.example:0"),
        ("broker_url", "https://broker.example:65536"),
        ("broker_url", "https://broker.example:"),
        ("broker_url", "https://"),
        ("broker_url", "https://br\u043eker.example"),
        ("broker_url", "https://broker.example\n"),
        ("broker_url", "broker.example:8443"),
        ("agent_cn", "Worker"),
        ("agent_cn", ""),
        ("agent_cn", 1),
    ],
)
def test_refuses(field: str, value: object) -> None:
    document = json.loads(BUNDLE) | {field: value}
    error = samples.refusal(bundle.parse, json.dumps(document).encode())
    assert error.where == field


@pytest.mark.parametrize("field", ["ticket", "broker_ca", "broker_url", "agent_cn"])
def test_refuses_a_missing_and_an_unknown_field(field: str) -> None:
    document = json.loads(BUNDLE)
    more = json.dumps(document | {"more": 1}).encode()
    assert str(samples.refusal(bundle.parse, more)) == "more: unknown field"
    del document[field]
    assert str(samples.refusal(bundle.parse, json.dumps(document).encode())) == f"{field}: missing"


@pytest.mark.promise("P30")
@pytest.mark.parametrize("wrong", ["secret-ticket-of-an-agent!", "secret-ticket\n", 'secret-ticket"'])
def test_an_error_never_repeats_the_ticket(wrong: str) -> None:
    document = json.dumps(json.loads(BUNDLE) | {"ticket": wrong}).encode()
    for raw in (document, document + b"x", document[:-1], document.replace(b'"broker_url"', b'"broker_urls"')):
        assert "secret" not in str(samples.refusal(bundle.parse, raw))


def test_nothing_is_encoded_that_would_be_refused() -> None:
    with pytest.raises(Malformed, match="broker_url"):
        bundle.encode(replace(SAMPLE, broker_url="http://broker.example"))


@FUZZ
@given(samples.hostile([BUNDLE]))
def test_malformed_or_a_bundle(raw: bytes) -> None:
    read = samples.malformed_or(bundle.parse, raw)
    assert read is None or isinstance(read, Bundle)
