"""A record as plain JSON values, for people and programs that read the journal: digests in hex, times as RFC 3339."""

from __future__ import annotations

import dataclasses
from typing import Any

from broker.wire.names import Instant
from broker.wire.record_codec import kind_of
from broker.wire.records import Record
from broker.wire.times import show


def view(record: Record) -> dict[str, Any]:
    """`{"seq", "at", "kind", ...}` and the fact's own fields."""
    head = {"seq": record.seq, "at": show(record.at), "kind": kind_of(record.fact)}
    fact = record.fact
    own = {f.name: _plain(f.name, getattr(fact, f.name)) for f in dataclasses.fields(fact)}
    if "kind" in own:  # a directive's kind: the record has one of its own
        own["action_kind"] = own.pop("kind")
    return head | own


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return list(value)
    return show(Instant(value)) if name.endswith("_at") else value
