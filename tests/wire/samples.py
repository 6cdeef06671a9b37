"""Valid documents of every format, and what Hypothesis makes of them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from broker.errors import Malformed
from broker.wire.names import NAMESPACE_ADMIN, NAMESPACE_DIRECTIVE, Digest, Fingerprint
from broker.wire.verified import VerifiedBytes
from tests.fakes.soft_key import SoftKey
from tests.vectors import envelopes, statements

STATEMENT = statements.BASE.encode()
ENVELOPE = envelopes.BASE.encode()
INSTRUCTION = STATEMENT[: STATEMENT.index(b'{"kind"')] + b'{"kind":"instruction","text":"look at the log"}}'
SIGNATURES = [SoftKey(kind).sign(NAMESPACE_DIRECTIVE, STATEMENT) for kind in ("sk-ed25519", "sk-ecdsa", "webauthn")]
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
BUNDLE = b'{"agent_cn":"worker-a","broker_ca":"%s","broker_url":"https://broker.example:8443","ticket":"%s"}' % (
    PEM.replace("\n", "\\n").encode(),
    b"t" * 43,
)
PAIR = b'{"statement":"%s","signature":"%s"}' % (base64.b64encode(STATEMENT), base64.b64encode(SIGNATURES[0]))

FUZZ = settings(max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])

_TOKENS = [
    b"NaN", b"1e400", b"-0", b"9007199254740992", b"1.0", b"true", b"null", b'"\\ud800"', b'"a":1,"a":2',
    b"\xef\xbb\xbf", b"\xff\xfe", b"\x00",
    b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"=", b"\n", b"[" * 70, b"1" * 5000,
]  # fmt: skip


def _changed(raw: bytes, draw: st.DrawFn) -> bytes:
    at = draw(st.integers(0, len(raw)))
    end = min(len(raw), at + draw(st.integers(0, 12)))
    match draw(st.sampled_from(("cut", "drop", "double", "flip", "insert", "noise"))):
        case "cut":
            return raw[:at]
        case "drop":
            return raw[:at] + raw[end:]
        case "double":
            return raw[:end] + raw[at:]
        case "flip":
            return raw[:at] + bytes(byte ^ draw(st.integers(1, 255)) for byte in raw[at:end]) + raw[end:]
        case "insert":
            return raw[:at] + draw(st.sampled_from(_TOKENS)) + raw[end:]
        case _:
            return raw[:at] + draw(st.binary(max_size=8)) + raw[at:]


@st.composite
def mutated(draw: st.DrawFn, valid: Sequence[bytes]) -> bytes:
    """A valid document after one to four changes: a cut, a repetition, flipped bits, hostile tokens."""
    raw = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(1, 4))):
        raw = _changed(raw, draw)
    return raw


def hostile(valid: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Any bytes, and valid documents that were changed."""
    return st.one_of(st.binary(max_size=300), st.text(max_size=80).map(str.encode), mutated(valid))


def malformed_or(parse: Callable[[bytes], object], raw: bytes) -> object:
    """The fuzz invariant: the value, or None for Malformed; any other exception fails the test."""
    try:
        return parse(raw)
    except Malformed:
        return None


def refusal(parse: Callable[[bytes], object], raw: bytes) -> Malformed:
    """The Malformed that these bytes must earn."""
    with pytest.raises(Malformed) as caught:
        parse(raw)
    return caught.value


def verified(raw: bytes, namespace: str = NAMESPACE_DIRECTIVE) -> VerifiedBytes:
    """Bytes as trust hands them on."""
    return VerifiedBytes(raw, b"", namespace, Fingerprint("SHA256:x"), Digest(bytes(32)), Digest(bytes(32)))


def verified_admin(raw: bytes) -> VerifiedBytes:
    """The same, under the namespace of envelopes."""
    return verified(raw, NAMESPACE_ADMIN)
