"""A request's headers and query, read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from broker.errors import Malformed

Headers = Mapping[bytes, bytes]

_ONCE = (b"host", b"content-type", b"content-length", b"transfer-encoding", b"expect", b"origin", b"authorization")
_MAX_QUERY_FIELDS = 16


def collect(pairs: list[tuple[bytes, bytes]]) -> Headers:
    """Headers by lower-case name, their values without the blanks around them (RFC 9110, 5.5).

    Repeated list headers are joined. Raises Malformed for one that must be single.
    """
    pairs = [(name, value.strip(b" \t")) for name, value in pairs]
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    headers = {}
    for name, value in pairs:
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise Malformed(name.decode("ascii"), "given twice")
        else:
            headers[name] += b", " + value
    return headers


def host_name(host: bytes) -> bytes:
    """A Host header's name, in lower case, without its port."""
    lower = host.lower()
    name, colon, port = lower.rpartition(b":")
    return name if colon and port.isdigit() else lower


def is_type(value: bytes, expected: str) -> bool:
    """Is it exactly the expected content type, with no parameter but charset=utf-8?"""
    text = value.decode("latin-1")
    if text == expected:
        return True
    kind, _, parameter = text.lower().partition(";")
    return kind.strip() == expected and parameter.strip() in ("charset=utf-8", 'charset="utf-8"')


def query(raw: bytes) -> Mapping[str, str]:
    """The query's fields, each at most once. Raises Malformed."""
    try:
        text = raw.decode("ascii")
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=_MAX_QUERY_FIELDS
        )
    except ValueError:
        raise Malformed("query", "expected name=value pairs") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Malformed("query", "a name is given twice")
    return fields
