"""A call that was begun by a consent that was void, or for an agent or tool that was shut, is seen in the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.rules.authority import receipts
from broker.wire.act_records import CallClaimed
from broker.wire.names import Digest
from broker.wire.records import AgentFrozen, BrokerStarted, ClockAccepted, JournalRestored, PayloadRef, Record
from tests.authority.table import SEND, TOOLS, Table, tool
from tests.proof.cast import A, digest

pytestmark = pytest.mark.promise("P20")
OVER = "its consent was over when it was begun"
RUN = "its run was over when it was begun"
SHUT = "its agent's enrolment was over when it was begun"
CHANGED = "its tool was not as it was accepted when it was begun"


def begin(table: Table, name: str) -> CallClaimed:
    """The record of a call that goes through."""
    table.done(name, SEND if name == "send" else {})
    return table.last(CallClaimed)


def flaws(table: Table, fact: CallClaimed) -> list[str]:
    """What is seen of such a record at the end of the journal."""
    again = replace(fact, claim="another")
    record = Record(len(table.records) + 1, table.at, digest("prev"), (PayloadRef(fact.args_digest, 1, 0, 1),), again)
    found = receipts.read([*table.records, record]).of["another"].flaws
    return [flaw for flaw in found if "signed envelope" not in flaw]


def freeze(table: Table) -> None:
    table.write(AgentFrozen(A, table.generation(), digest("a"), digest("b")))


VOID: dict[str, tuple[Callable[[Table], object], list[str], list[str]]] = {
    "its tool changed": (lambda table: table.see(*(one for one in TOOLS if one.name != "send")), [CHANGED, OVER], []),
    "it was accepted anew": (lambda table: table.accept(tool("send", description="New.")), [OVER], []),
    "its agent was revoked": (lambda table: table.revoke(A), [SHUT, RUN, OVER], [SHUT, RUN, OVER]),
    "its agent enrolled anew": (lambda table: table.enrol(A), [SHUT, RUN, OVER], [SHUT, RUN, OVER]),
    "its agent was frozen": (freeze, [SHUT, RUN, OVER], [SHUT, RUN, OVER]),
    "the clock was accepted": (lambda table: table.write(ClockAccepted(table.at)), [RUN, OVER], [RUN, OVER]),
    "the journal was restored": (lambda table: table.write(JournalRestored(0)), [SHUT, RUN, OVER], [SHUT, RUN, OVER]),
    "a broker started": (lambda table: table.write(BrokerStarted("0", 0)), [], [OVER]),
}


@pytest.mark.parametrize("name", VOID)
def test_a_consent_that_was_void_is_a_flaw(name: str) -> None:
    happen, of_act, of_lease = VOID[name]
    for kind, expected in (("send", of_act), ("read", of_lease)):
        table = Table()
        if kind == "send":
            table.act()
            claimed = begin(table, kind)
            claimed = replace(claimed, consent=f"act/{table.act()}")
        else:
            table.opened()
            claimed = begin(table, kind)
        assert flaws(table, claimed) == []
        happen(table)
        assert flaws(table, claimed) == expected, (name, kind)


def test_another_definition_than_the_signed_one_is_a_flaw(table: Table) -> None:
    table.act()
    claimed = begin(table, "send")
    claimed = replace(claimed, consent=f"act/{table.act()}")
    assert flaws(table, claimed) == []
    assert flaws(table, replace(claimed, tool_digest=Digest(bytes(32)))) == ["the act was signed for another call"]
