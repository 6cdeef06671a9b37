"""Envelopes: one admin operation, and whatever is not exactly that."""

from __future__ import annotations

from tests.vectors.case import File, Wrong, changed

BASE = '{"v":1,"instance":"demo","op":"revoke","params":{"id":"d-1"},"issued_at":"2026-01-01T00:00:00Z"}'
"""Each case replaces the first occurrence of one text in it."""

_TAKEN: dict[str, tuple[str, str, str]] = {
    "as it is": ('{"v"', '{"v"', "revoke id"),
    "params left out": ('"params":{"id":"d-1"},', "", "revoke"),
    "params empty": ('{"id":"d-1"}', "{}", "revoke"),
    "an op with an underscore": ("revoke", "agent_invite", "agent_invite id"),
}
_REFUSED: dict[str, Wrong] = {
    "duplicate key": ('{"v":1', '{"v":1,"v":1', "envelope", "duplicate key v"),
    "duplicate param spelt with an escape": (
        '{"id":"d-1"',
        '{"id":"d-1","\\u0069d":"d-2"',
        "envelope",
        "duplicate key id",
    ),
    "params that differ only in case": (
        '{"id":"d-1"',
        '{"id":"d-1","ID":"d-2"',
        "envelope",
        "id and ID differ only in case",
    ),
    "trailing bytes": ('00:00Z"}', '00:00Z"}}', "envelope", "not one JSON value"),
    "byte order mark": ('{"v"', '\ufeff{"v"', "envelope", "byte order mark"),
    "unknown field": ('{"v"', '{"nonce":"n","v"', "nonce", "unknown field"),
    "v missing": ('"v":1,', "", "v", "missing"),
    "instance missing": ('"instance":"demo",', "", "instance", "missing"),
    "op missing": ('"op":"revoke",', "", "op", "missing"),
    "issued_at missing": (',"issued_at":"2026-01-01T00:00:00Z"', "", "issued_at", "missing"),
    "v a boolean": ('"v":1', '"v":true', "v", ""),
    "v a fraction": ('"v":1', '"v":1.0', "v", ""),
    "instance null": ('"demo"', "null", "instance", ""),
    "op in capitals": ('"revoke"', '"Revoke"', "op", ""),
    "op empty": ('"revoke"', '""', "op", ""),
    "op of 65": ('"revoke"', '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"', "op", ""),
    "op with a line break": ('"revoke"', '"revoke\\n"', "op", ""),
    "op a number": ('"revoke"', "1", "op", "found a number"),
    "params a list": ('{"id":"d-1"}', '["d-1"]', "params", "found an array"),
    "params null": ('{"id":"d-1"}', "null", "params", "found null"),
    "a param that is a number": ('"d-1"', "1", "params.id", "found a number"),
    "a param that is a boolean": ('"d-1"', "true", "params.id", "found true"),
    "a param that is an object": ('"d-1"', "{}", "params.id", "found an object"),
    "issued_at in local words": ("2026-01-01T00:00:00Z", "2026-01-01 00:00:00Z", "issued_at", ""),
}

FILE = File(
    "envelopes",
    "Envelopes that a broker must take or refuse. `where` is the field that the refusal must name; `why`, where given, "
    "is part of its words.",
    "docs/formats/envelope.md",
    changed(BASE, _TAKEN, _REFUSED),
)
