"""Refusals of one caller within a minute fold into few records with counts, so that no caller can fill the disk."""

from __future__ import annotations

from broker.wire.names import Instant
from broker.wire.records import Draft, RequestRefused
from broker.wire.times import SECOND

FOLD_S = 60
SUBJECTS = 8
_Key = tuple[str, str, str]
_Said = tuple[str, str, str, tuple[str, ...]]


class RefusalFold:
    """The refusals of the running minute, by door, caller and operation.

    The key leaves subject and reason out: what a caller sees of the time that a refusal takes (a write, or none) then
    tells whether it was refused anything in the last minute, and nothing about what it asked for.
    """

    def __init__(self) -> None:
        self._open: dict[_Key, tuple[Instant, dict[_Said, int]]] = {}

    def fold(self, refusal: RequestRefused, now: Instant) -> tuple[Draft, ...]:
        """The record to write now: the first of its minute is written at once, the next ones are counted."""
        key = (refusal.door, refusal.caller, refusal.op)
        if key not in self._open:
            self._open[key] = (now, {})
            return (Draft(refusal),)
        counts = self._open[key][1]
        said = (refusal.subject, refusal.reason, refusal.rule, refusal.policies)
        if said not in counts and len(counts) >= SUBJECTS:
            said = ("", refusal.reason, "", ())
        counts[said] = counts.get(said, 0) + 1
        return ()

    def flush(self, now: Instant, *, everything: bool = False) -> tuple[Draft, ...]:
        """The counts of the minutes that are over, as records."""
        over = [k for k, (first, _) in self._open.items() if everything or now - first >= FOLD_S * SECOND]
        drafts: list[Draft] = []
        for key in over:
            _, counts = self._open.pop(key)
            drafts += [
                Draft(RequestRefused(*key, subject, reason, count, rule, policies))
                for (subject, reason, rule, policies), count in counts.items()
            ]
        return tuple(drafts)
