"""A state folder that is older than what was written: nothing from before goes on, and nothing that was lost counts."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import Reason
from broker.rules import admin, admit, consume, identity
from broker.rules.book import LEEWAY_S, Book
from broker.rules.decision import Decision
from broker.wire.names import Cn, Digest, DirectiveId, Instant
from broker.wire.records import Fact, JournalRestored, Record
from broker.wire.times import SECOND
from tests.proof.cast import BOTH, DEMO, TERMS, A, B, caller, digest, operator, order, request, signed_statement

AT = Instant(1_800_000_000 * SECOND)
RESTORED_AT = Instant(AT + 1000 * SECOND)
OPEN_AT = Instant(RESTORED_AT + (LEEWAY_S + 1) * SECOND)
LOST = 7


class Broker:
    """A book, and the shortest way to decide and write."""

    def __init__(self) -> None:
        self.book = Book(DEMO)

    def take(self, decision: Decision[Any], at: Instant) -> Any:
        for draft in decision.drafts:
            self.write(draft.fact, at, draft.payloads)
        return decision.refused.reason if decision.refused else decision.answer

    def write(self, fact: Fact, at: Instant, payloads: tuple[bytes, ...] = ()) -> None:
        self.book.apply(Record(self.book.records + 1, at, Digest(bytes(32)), (), fact), payloads or (b"", b""))

    def invite(self, cn: Cn, ticket: str, at: Instant) -> Any:
        asked = order("agent_invite", at, ticket)
        decision = admin.invite(self.book, at, order=asked, cn=cn, ticket_digest=digest(ticket), expires_s=600)
        return self.take(decision, at)

    def enrol(self, cn: Cn, ticket: str, at: Instant, *, key: str = "key") -> Any:
        ask, issue = request(cn, key)
        return self.take(identity.enrol(self.book, at, ticket_digest=digest(ticket), ask=ask, issue=issue), at)

    def renew(self, cn: Cn, generation: int, at: Instant) -> Any:
        ask, issue = request(cn, "another key")
        who = caller(cn, generation)
        return self.take(identity.renew(self.book, at, caller=who, ask=ask, issue=issue), at)

    def send(self, id: str, signed_at: Instant, at: Instant, generation: int = 1) -> Any:
        verified, statement = signed_statement(id, signed_at, generation=generation)
        asked = operator("send", id)
        decision = admit.admit(self.book, at, request=asked, verified=verified, statement=statement, terms=TERMS)
        answer = self.take(decision, at)
        return answer if isinstance(answer, Reason) else "sent"

    def consume(self, id: str, at: Instant, generation: int = 1, attempt: str = "") -> Any:
        decision = consume.consume(
            self.book, at, caller=caller(A, generation), raw_id=id, attempt=attempt, standing=BOTH, repeat_s=60
        )
        return self.take(decision, at)

    def restore(self) -> None:
        self.write(JournalRestored(LOST), RESTORED_AT)


@pytest.fixture
def broker() -> Broker:
    """worker-a is enrolled, has an open directive and one that was just consumed; worker-b holds a ticket."""
    made = Broker()
    made.invite(A, "ticket a", AT)
    made.enrol(A, "ticket a", AT)
    made.send("open", AT, AT)
    made.send("used", AT, AT)
    made.consume("used", Instant(RESTORED_AT - SECOND), attempt="try")
    made.invite(B, "ticket b", Instant(RESTORED_AT - SECOND))
    return made


@pytest.mark.promise("P5")
def test_nothing_that_was_open_goes_on(broker: Broker) -> None:
    broker.restore()
    assert broker.consume("open", OPEN_AT) == Reason.AGENT_REVOKED
    assert broker.consume("used", RESTORED_AT, attempt="try") == Reason.AGENT_REVOKED
    assert broker.enrol(B, "ticket b", RESTORED_AT) == Reason.TICKET_UNKNOWN
    assert broker.book.tombstones[DirectiveId("open")].state == "invalidated"


@pytest.mark.promise("P2", "P5")
def test_no_certificate_that_may_have_been_given_counts_again(broker: Broker) -> None:
    broker.restore()
    assert broker.renew(A, 1, OPEN_AT) == Reason.AGENT_REVOKED
    broker.invite(A, "ticket c", OPEN_AT)
    broker.enrol(A, "ticket c", OPEN_AT)
    for lost in range(1, LOST + 2):
        assert broker.renew(A, lost, OPEN_AT) == Reason.GENERATION_STALE
    assert isinstance(broker.renew(A, LOST + 2, OPEN_AT), bytes)
    for lost in range(LOST + 1):
        assert broker.renew(B, lost, OPEN_AT) == Reason.GENERATION_STALE, "of a name that is not known at all"
    broker.invite(B, "ticket d", OPEN_AT)
    broker.enrol(B, "ticket d", OPEN_AT)
    assert broker.book.agents[B].generation == LOST + 1


@pytest.mark.promise("P5", "P8")
@pytest.mark.parametrize("signed_at", [AT, RESTORED_AT, Instant(RESTORED_AT + LEEWAY_S * SECOND)])
def test_nothing_that_may_have_been_used_is_taken_again(broker: Broker, signed_at: Instant) -> None:
    broker.restore()
    at = max(signed_at, RESTORED_AT)
    flaw = admin.flaw_of(broker.book, at, order("list", signed_at, "n"), DEMO)
    assert flaw
    assert flaw[0] in (Reason.JOURNAL_RESTORED, Reason.ENVELOPE_STALE)
    assert broker.send("lost-and-used", signed_at, at) == Reason.JOURNAL_RESTORED


def test_two_minutes_later_everything_works_anew(broker: Broker) -> None:
    broker.restore()
    broker.invite(A, "ticket c", OPEN_AT)
    broker.enrol(A, "ticket c", OPEN_AT)
    generation = broker.book.agents[A].generation
    assert broker.send("fresh", OPEN_AT, OPEN_AT, generation) == "sent"
    assert isinstance(broker.consume("fresh", OPEN_AT, generation), bytes)
