"""What arrives in requests and files, and is read by broker/wire."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from broker.errors import Malformed
from broker.wire import (
    bodies,
    bundle,
    directive_tools,
    envelope,
    frame,
    head,
    names,
    pointer,
    record_codec,
    sshsig,
    statement,
    strict_json,
    times,
)
from broker.wire.bundle import Bundle
from broker.wire.envelope import Envelope
from broker.wire.frame import Damaged, Frame, Torn
from broker.wire.records import Record
from broker.wire.sshsig import SshSignature
from broker.wire.statement import Statement
from tests.fakes.soft_key import armor
from tests.fuzz.target import Target
from tests.wire import samples, vectors

_SIGNATURES = vectors.taken("sshsigs")
_PAIR = b'{"statement":"%s","signature":"%s"}' % tuple(map(base64.b64encode, (samples.STATEMENT, _SIGNATURES[0])))
_WORDS = {
    "broker.wire.names.cn": names.cn,
    "broker.wire.names.instance": names.instance,
    "broker.wire.names.directive_id": names.directive_id,
    "broker.wire.names.attempt": names.attempt,
    "broker.wire.names.generation": names.generation,
    "broker.wire.names.tool_word": partial(names.tool_word, where="word"),
    "broker.wire.times.parse": partial(times.parse, where="time"),
}
_CALLS = tuple(
    json.dumps(call).encode()
    for call in (
        ["directive_consume", {"id": "d-1"}],
        ["directive_check", {"directive_id": "d-1"}],
        ["directive_inbox", {"wait_s": 30}],
        ["directive_report", {"id": "d-1", "outcome": "done", "note": "It went well."}],
        ["directive_report", {"id": "d-1", "outcome": "failed", "note": "half a pair: \ud83d"}],
    )
)


def _blob(armored: bytes) -> bytes:
    return base64.b64decode(b"".join(armored.split(b"\n")[1:-2]))


def _written(said: Statement) -> Statement:
    """The statement as `lever` would sign it. A double like 1e20 has canonical bytes that may not be read again."""
    try:
        return statement.read(statement.encode(said))
    except Malformed as error:
        if error.why != "an integer beyond +-(2^53-1)":
            raise
        return said


def _as_words(value: object) -> object:
    """Any JSON value in the place of each word of the protocol; the words that it is."""
    taken: list[object] = []
    refused: Malformed | None = None
    for parse in _WORDS.values():
        try:
            taken.append(parse(value))
        except Malformed as error:
            refused = error
    if refused and not taken:
        raise refused
    return taken


def _json_first(parse: Callable[[Any], object]) -> Callable[[bytes], object]:
    """As a lenient reader hands it over: with NaN, half surrogate pairs, and numbers of any size."""

    def read(raw: bytes) -> object:
        try:
            value = json.loads(raw.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise Malformed("json", "none") from error
        return parse(value)

    return read


def _call(value: Any) -> object:
    match value:
        case [str(name), dict(arguments)]:
            return directive_tools.parse(name, arguments)
    raise Malformed("call", "none")


TARGETS = (
    Target(
        "JSON",
        ("broker.wire.strict_json.parse", "broker.wire.strict_json.canonical"),
        lambda raw: strict_json.parse(raw, "body"),
        (b'{"a":[1,2.5,"\\ud83d\\ude00",{"b":null,"c":true}]}', samples.STATEMENT, b"[]", b"-0", b'"x"'),
        same=lambda value: json.loads(json.dumps(value, ensure_ascii=False).encode()),
    ),
    Target(
        "canonical JSON",
        (),
        lambda raw: strict_json.canonical(strict_json.parse(raw, "body")),
        (b'{"b":[1,2.5,1e21,"\\u20ac"],"a":{}}', samples.STATEMENT),
        bytes,
        # In the form of RFC 8785 every number is a double.
        same=lambda raw: strict_json.canonical(json.loads(raw, parse_int=float)),
    ),
    Target(
        "statement",
        ("broker.wire.statement.read", "broker.wire.statement.parse"),
        lambda raw: statement.parse(samples.verified(raw)),
        (samples.STATEMENT, samples.INSTRUCTION),
        Statement,
        same=_written,
    ),
    Target(
        "envelope",
        ("broker.wire.envelope.read", "broker.wire.envelope.parse"),
        lambda raw: envelope.parse(samples.verified_admin(raw)),
        (samples.ENVELOPE,),
        Envelope,
        same=lambda value: envelope.read(envelope.encode(value)),
    ),
    Target("SSHSIG", ("broker.wire.sshsig.parse",), sshsig.parse, _SIGNATURES, SshSignature),
    Target(
        "SSHSIG in a sound armor",
        (),
        lambda blob: sshsig.parse(armor(blob)),
        tuple(map(_blob, _SIGNATURES[:1] + _SIGNATURES[3:])),
        SshSignature,
    ),
    Target(
        "bundle",
        ("broker.wire.bundle.parse",),
        bundle.parse,
        vectors.taken("bundles"),
        Bundle,
        same=lambda value: bundle.parse(bundle.encode(value)),
    ),
    Target(
        "pointer",
        ("broker.wire.pointer.sentence",),
        lambda raw: pointer.sentence(names.DirectiveId(raw.decode("utf-8", "surrogateescape"))).split('"')[1].encode(),
        vectors.taken("pointers"),
        bytes,
        again=bytes,
    ),
    Target("journal frame", ("broker.wire.frame.read",), lambda raw: frame.read(raw, 0), vectors.taken("frames"),
           Frame | Torn | Damaged | None),
    Target(
        "journal record",
        ("broker.wire.record_codec.decode",),
        record_codec.decode,
        vectors.taken("records"),
        Record,
        again=record_codec.encode,
    ),
    Target("signed head", ("broker.wire.head.split_signed",), head.split_signed,
           (head.encode_signed(head.encode(head.Head(2, names.Digest(bytes(32))), names.Instance("demo")), bytes(71)),),
           tuple, again=lambda parts: head.encode_signed(*parts)),
    Target("words and times", tuple(_WORDS), _json_first(_as_words), (
        b'"worker-a"', b'"files:write/x.y"', b'"2026-01-31T09:00:00.123456789+01:00"', b"3", b'"' + b"a" * 63 + b'"',
    )),
    Target("tool call", ("broker.wire.directive_tools.parse",), _json_first(_call), _CALLS),
    Target(
        "signed pair",
        ("broker.wire.bodies.signed_pair",),
        lambda raw: bodies.signed_pair(raw, "statement"),
        (_PAIR,),
        bodies.SignedPair,
    ),
    Target("body of consume", ("broker.wire.bodies.consume_body",), bodies.consume_body,
           (b'{"id":"d-1"}', b'{"id":"d-1","attempt":"a-1"}'), bodies.ConsumeBody),
    Target("body of check", ("broker.wire.bodies.check_body",), bodies.check_body, (b'{"id":"d-1"}',), str),
    Target("body of report", ("broker.wire.bodies.report_body",), bodies.report_body,
           (b'{"id":"d-1","outcome":"done","note":"It went well."}',), bodies.ReportBody),
    Target("body of enrol", ("broker.wire.bodies.enrol_body",), bodies.enrol_body,
           (b'{"ticket":"tttt","csr":"-----BEGIN"}',), bodies.EnrolBody),
    Target("body of renew", ("broker.wire.bodies.csr_body",), bodies.csr_body, (b'{"csr":"-----BEGIN"}',), str),
)  # fmt: skip
