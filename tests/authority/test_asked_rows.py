"""What the operator is told with a request: what its answer takes, so that nothing is signed to read it."""

from __future__ import annotations

from broker.rules.authority import rows
from tests.authority.table import SEND, Table
from tests.proof.cast import A


def terms(table: Table, id: str) -> object:
    return rows.asked(table.book, table.book.ledger.requests[id], table.at).get("terms", "none are told")


def test_a_request_to_read_comes_with_what_all_layers_let_its_lease_be(table: Table) -> None:
    table.apply(accounts={"mail": {"lease_seconds": 60, "lease_operations": 9}})
    table.apply(f"agent/{A}", accounts={"mail": {"lease_seconds": 80, "lease_operations": 5}})
    id = table.asked("read")
    assert terms(table, id) == {"sensitive": False, "lease_seconds": 60, "lease_operations": 5}
    table.apply(accounts={"mail": {"sensitive": True}})
    assert terms(table, id) == {"sensitive": True, "lease_seconds": 80, "lease_operations": 5}


def test_one_for_a_call_comes_without(table: Table) -> None:
    assert terms(table, table.asked("send", SEND)) == "none are told"
