"""Records as deterministic CBOR (RFC 8949, 4.2.1), and back with every type and byte checked."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

import cbor2

from broker.errors import Malformed
from broker.wire import frame, records, times
from broker.wire.names import Digest, Instant
from broker.wire.records import Fact, PayloadRef, Record

FORMAT = 1
MAX_RECORD_BYTES = 1 << 20
_INT_MAX = (1 << 63) - 1


def _is_int(value: object) -> bool:
    return type(value) is int and -_INT_MAX <= value <= _INT_MAX


def _is_time(value: object) -> bool:
    """One that can be shown."""
    return type(value) is int and times.FIRST <= value <= times.LAST


def _is_digest(value: object) -> bool:
    return type(value) is bytes and len(value) == 32


def _is_texts(value: object) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


_CHECKS: dict[object, Callable[[object], bool]] = {
    str: lambda value: type(value) is str,
    int: _is_int,
    Instant: _is_time,
    Digest: _is_digest,
    tuple[str, ...]: _is_texts,
}


def _wire_name(cls: type) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")


def _base(annotation: object) -> object:
    """What there is a check for: Digest itself, the plain type under any other NewType."""
    while annotation not in _CHECKS and hasattr(annotation, "__supertype__"):
        annotation = annotation.__supertype__
    return annotation


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    cls: type
    fields: tuple[tuple[str, Callable[[object], bool], bool], ...]

    @classmethod
    def of(cls, fact: type) -> _Kind:
        hints = typing.get_type_hints(fact, vars(records))
        return cls(
            fact,
            tuple(
                (f.name, _CHECKS[_base(hints[f.name])], hints[f.name] == tuple[str, ...])
                for f in dataclasses.fields(fact)
            ),
        )


_KINDS = {_wire_name(cls): _Kind.of(cls) for cls in typing.get_args(Fact)}
_NAMES = {kind.cls: name for name, kind in _KINDS.items()}


def kind_of(fact: Fact) -> str:
    """The fact's name in the journal: `directive_admitted` for DirectiveAdmitted."""
    return _NAMES[type(fact)]


def encode(record: Record) -> bytes:
    """The record's bytes: an array [format, seq, at, prev, kind, payload refs, body, rest].

    Raises Malformed for a field that `decode` would refuse: a record that is written must be one that can be read.
    """
    fact = record.fact
    name = _NAMES[type(fact)]
    body = {field: _plain(getattr(fact, field)) for field, _, _ in _KINDS[name].fields}
    for field, check, _ in _KINDS[name].fields:
        if not check(body[field]):
            raise Malformed(f"record.body.{field}", "of the wrong type, or beyond the format")
    if not _is_time(record.at):
        raise Malformed("record.at", "beyond the format")
    refs = [[ref.digest, ref.segment, ref.offset, ref.length] for ref in record.payloads]
    return cbor2.dumps([FORMAT, record.seq, record.at, record.prev, name, refs, body, record.rest], canonical=True)


def digest_of(record: Record) -> Digest:
    """What the record behind this one links to."""
    return frame.digest(encode(record))


def _plain(value: Any) -> Any:
    """As CBOR will give it back: an enumeration's word as text, a tuple as a list."""
    if isinstance(value, str):
        return str(value)
    return list(value) if type(value) is tuple else value


def decode(raw: bytes) -> Record:
    """The one record that these bytes are. Raises Malformed for anything that `encode` would not have written."""
    try:
        value = cbor2.loads(raw, allow_indefinite=False, allow_duplicate_keys=False, max_depth=8)
    except Exception as error:  # cbor2 documents one error type and raises others for hostile bytes
        raise Malformed("record", "not CBOR") from error
    if type(value) is not list or len(value) != 8:
        raise Malformed("record", "expected an array of eight")
    version, seq, at, prev, name, refs, body, rest = value
    if type(version) is not int or version != FORMAT:
        raise Malformed("record.format", f"expected {FORMAT}")
    if not (all(_is_int(n) and n >= 0 for n in (seq, rest)) and _is_time(at) and _is_digest(prev)):
        raise Malformed("record", "wrong type in seq, at, prev or rest")
    if type(name) is not str or name not in _KINDS:
        raise Malformed("record.kind", "unknown kind")
    record = Record(seq, Instant(at), Digest(prev), _refs(refs), _fact(_KINDS[name], body), rest)
    if encode(record) != raw:
        raise Malformed("record", "not in deterministic form")
    return record


def _refs(value: object) -> tuple[PayloadRef, ...]:
    if type(value) is not list:
        raise Malformed("record.payloads", "expected an array")
    refs = []
    for item in value:
        if type(item) is not list or len(item) != 4:
            raise Malformed("record.payloads", "expected [digest, segment, offset, length]")
        digest, segment, offset, length = item
        numbers = (segment, offset, length)
        if type(digest) is not bytes or len(digest) != 32 or not all(_is_int(n) and n >= 0 for n in numbers):
            raise Malformed("record.payloads", "wrong type in a reference")
        refs.append(PayloadRef(Digest(digest), segment, offset, length))
    return tuple(refs)


def _fact(kind: _Kind, body: object) -> Fact:
    if type(body) is not dict or len(body) != len(kind.fields):
        raise Malformed("record.body", "wrong fields")
    values: dict[str, Any] = {}
    for field, check, is_texts in kind.fields:
        if field not in body or not check(body[field]):
            raise Malformed(f"record.body.{field}", "missing or of the wrong type")
        values[field] = tuple(body[field]) if is_texts else body[field]
    return typing.cast(Fact, kind.cls(**values))
