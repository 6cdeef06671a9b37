"""Whatever the cause of a miss: the same look-ups in the same order, the same note, and no other trace."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Reason
from broker.rules import consume
from broker.rules.book import Book
from broker.wire.caller import Caller
from broker.wire.names import Cn, Digest, DirectiveId, Fingerprint, Generation, Instance, Instant
from broker.wire.records import (
    AgentEnrolled,
    AgentInvited,
    DirectiveAdmitted,
    DirectiveConsumed,
    DirectiveInvalidated,
    DirectiveRevoked,
    DirectivesExpired,
    Fact,
    Record,
)
from broker.wire.times import SECOND
from broker.wire.verified import Standing

CN, OTHER, ZERO = Cn("a"), Cn("b"), Digest(b"\0" * 32)
SIGNER, FINGERPRINT = Digest(b"s" * 32), Fingerprint("SHA256:x")
NOW, DAY = Instant(1000 * SECOND), Instant(86400 * SECOND)
STANDING = Standing(ZERO, good=frozenset([SIGNER]), bad=frozenset())


class Watched(dict[Any, Any]):
    """A table that writes down each time it is asked."""

    def __init__(self, name: str, seen: list[str], table: dict[Any, Any]) -> None:
        super().__init__(table)
        self._name, self._seen = name, seen

    def get(self, key: Any, default: Any = None) -> Any:
        self._seen.append(self._name)
        return super().get(key, default)

    def __getitem__(self, key: Any) -> Any:
        self._seen.append(self._name)
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self._seen.append(self._name)
        return super().__contains__(key)


def admitted(id: str, cn: Cn = CN, generation: int = 2, opens_at: int = 1, ends_at: int = DAY) -> DirectiveAdmitted:
    return DirectiveAdmitted(
        DirectiveId(id), cn, Generation(generation), "instruction", "", "", ZERO, Instant(1), Instant(opens_at),
        Instant(ends_at), FINGERPRINT, SIGNER, ZERO,
    )  # fmt: skip


def enrolled(cn: Cn, generation: int) -> list[Fact]:
    ticket = Digest(f"{cn}{generation}".encode().ljust(32))
    invited = AgentInvited(cn, ticket, DAY, FINGERPRINT)
    return [invited, AgentEnrolled(cn, Generation(generation), ticket, ZERO, ZERO, DAY)]


def book_of() -> Book:
    facts: list[Fact] = [
        *enrolled(CN, 1), admitted("older", generation=1), *enrolled(CN, 2), *enrolled(OTHER, 1),
        admitted("open"), admitted("theirs", OTHER, 1),
        admitted("early", opens_at=DAY - 1), admitted("shut", ends_at=2),
        admitted("consumed"), DirectiveConsumed(DirectiveId("consumed"), CN, Generation(2), ZERO, "attempt", DAY),
        admitted("revoked"), DirectiveRevoked(DirectiveId("revoked"), FINGERPRINT),
        admitted("expired"), DirectivesExpired(("expired",)),
        admitted("invalid"), DirectiveInvalidated(DirectiveId("invalid"), Reason.KEY_NOT_STANDING),
    ]  # fmt: skip
    book = Book(Instance("demo"))
    for seq, fact in enumerate(facts, 1):
        book.apply(Record(seq, Instant(3), ZERO, (), fact), None)
    return book


CAUSES = {
    "unknown": ("nothing", 2, Reason.UNKNOWN_ID),
    "malformed": ("no id!", 2, Reason.MALFORMED_ID),
    "another's": ("theirs", 2, Reason.OTHER_TARGET),
    "older certificate": ("open", 1, Reason.GENERATION_STALE),
    "older certificate's own": ("older", 1, Reason.GENERATION_STALE),
    "consumed": ("consumed", 2, Reason.ALREADY_CONSUMED),
    "revoked": ("revoked", 2, Reason.REVOKED),
    "expired": ("expired", 2, Reason.EXPIRED),
    "closed and not swept": ("shut", 2, Reason.EXPIRED),
    "invalidated": ("invalid", 2, Reason.INVALIDATED),
    "early": ("early", 2, Reason.NOT_YET_VALID),
    "signed by a key that is gone": ("open", 2, Reason.SIGNERS_UNAVAILABLE),
}
NO_KEYS = Standing(ZERO, good=frozenset(), bad=frozenset())


def miss(id: str, generation: int, standing: Standing = STANDING) -> tuple[list[str], Any]:
    book, seen = book_of(), []
    for name in ("directives", "tombstones", "repeats", "agents"):
        setattr(book, name, Watched(name, seen, getattr(book, name)))
    caller = Caller(CN, Generation(generation), DAY, ZERO, ZERO)
    decision = consume.consume(book, NOW, caller=caller, raw_id=id, attempt="other", standing=standing, repeat_s=60)
    return seen, decision


@pytest.mark.promise("P6")
@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_of_a_miss_goes_the_same_way(cause: str) -> None:
    id, generation, reason = CAUSES[cause]
    seen, decision = miss(id, generation, NO_KEYS if "gone" in cause else STANDING)
    assert decision.refused.reason is reason, "the operator's journal knows it"
    assert (decision.drafts, decision.answer) == ((), None)
    assert (decision.noted.door, decision.noted.caller, decision.noted.op) == ("agent", CN, "consume")
    assert seen == miss("nothing", 2)[0]
    assert set(seen) == {"directives", "tombstones", "repeats", "agents"}
