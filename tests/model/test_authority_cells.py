"""Every state of a request and of an act with everything that can come: each cell is written from the design.

A cell is the answer and, behind the colon, the state afterwards. `asked`: the operator is asked, once more or still.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from broker.rules.authority import asking, closing, consent, leases, orders, passage
from broker.rules.authority.entries import ActState, RequestState
from tests.model import office
from tests.model.office import Office
from tests.model.test_cells import agrees, cells, grid, named

REQUESTS = """
             approve                       approve_other                 deny
pending      ok:approved                   approval_differs:pending      ok:denied
overdue      already_resolved:pending      already_resolved:pending      already_resolved:pending
approved     already_resolved:approved     already_resolved:approved     already_resolved:approved
denied       already_resolved:denied       already_resolved:denied       already_resolved:denied
expired      already_resolved:expired      already_resolved:expired      already_resolved:expired
invalidated  already_resolved:invalidated  already_resolved:invalidated  already_resolved:invalidated

             again                  lapse           change          enrol           agent_revoke
pending      asked:pending          ok:pending      ok:invalidated  ok:invalidated  true:invalidated
overdue      asked:pending          ok:expired      ok:invalidated  ok:invalidated  true:invalidated
approved     claimed:approved       ok:approved     ok:approved     ok:approved     true:approved
denied       request_denied:denied  ok:denied       ok:denied       ok:denied       true:denied
expired      asked:expired          ok:expired      ok:expired      ok:expired      true:expired
invalidated  asked:invalidated      ok:invalidated  ok:invalidated  ok:invalidated  true:invalidated

             stop              restart         clock           restored
pending      true:pending      ok:pending      ok:invalidated  ok:invalidated
overdue      true:pending      ok:pending      ok:invalidated  ok:invalidated
approved     true:approved     ok:approved     ok:approved     ok:approved
denied       true:denied       ok:denied       ok:denied       ok:denied
expired      true:expired      ok:expired      ok:expired      ok:expired
invalidated  true:invalidated  ok:invalidated  ok:invalidated  ok:invalidated
"""

ACTS = """
             call               repeat                   other              revoke
scheduled    asked:active       asked:active             asked:active       true:revoked
active       claimed:claimed    claimed:claimed          asked:active       true:revoked
closed       asked:active       asked:active             asked:active       true:revoked
running      asked:claimed      in_progress:claimed      asked:claimed      true:claimed
done         asked:claimed      done:claimed             asked:claimed      false:claimed
failed       asked:claimed      failed:claimed           asked:claimed      false:claimed
unsent       claimed:claimed    claimed:claimed          asked:active       true:revoked
unknown      asked:claimed      outcome_unknown:claimed  asked:claimed      false:claimed
expired      asked:expired      asked:expired            asked:expired      false:expired
revoked      asked:revoked      asked:revoked            asked:revoked      false:revoked
invalidated  asked:invalidated  asked:invalidated        asked:invalidated  false:invalidated

             unhold          tighten                     lapse           change
scheduled    ok:invalidated  denied_by_rule:invalidated  ok:active       ok:invalidated
active       ok:invalidated  denied_by_rule:invalidated  ok:active       ok:invalidated
closed       ok:invalidated  denied_by_rule:invalidated  ok:expired      ok:invalidated
running      ok:claimed      denied_by_rule:claimed      ok:claimed      ok:claimed
done         ok:claimed      denied_by_rule:claimed      ok:claimed      ok:claimed
failed       ok:claimed      denied_by_rule:claimed      ok:claimed      ok:claimed
unsent       ok:invalidated  denied_by_rule:invalidated  ok:active       ok:invalidated
unknown      ok:claimed      denied_by_rule:claimed      ok:claimed      ok:claimed
expired      ok:expired      denied_by_rule:expired      ok:expired      ok:expired
revoked      ok:revoked      denied_by_rule:revoked      ok:revoked      ok:revoked
invalidated  ok:invalidated  denied_by_rule:invalidated  ok:invalidated  ok:invalidated

             enrol           agent_revoke      stop              restart         clock           restored
scheduled    ok:invalidated  true:invalidated  true:active       ok:active       ok:invalidated  ok:invalidated
active       ok:invalidated  true:invalidated  true:active       ok:active       ok:invalidated  ok:invalidated
closed       ok:invalidated  true:invalidated  true:active       ok:active       ok:invalidated  ok:invalidated
running      ok:claimed      true:claimed      true:claimed      ok:claimed      ok:claimed      ok:claimed
done         ok:claimed      true:claimed      true:claimed      ok:claimed      ok:claimed      ok:claimed
failed       ok:claimed      true:claimed      true:claimed      ok:claimed      ok:claimed      ok:claimed
unsent       ok:invalidated  true:invalidated  true:active       ok:active       ok:invalidated  ok:invalidated
unknown      ok:claimed      true:claimed      true:claimed      ok:claimed      ok:claimed      ok:claimed
expired      ok:expired      true:expired      true:expired      ok:expired      ok:expired      ok:expired
revoked      ok:revoked      true:revoked      true:revoked      ok:revoked      ok:revoked      ok:revoked
invalidated  ok:invalidated  true:invalidated  true:invalidated  ok:invalidated  ok:invalidated  ok:invalidated
"""

IN_CELLS = {
    "passage.pass_on", "consent.grant", "consent.approve", "consent.deny", "closing.end", "closing.settle",
    "closing.lapse", "orders.apply_policy", "orders.accept_tools", "orders.see_tools", "orders.revoke_act",
    "orders.stop_all",
}  # fmt: skip
IN_LEASE_CELLS = {"consent.open_lease", "leases.ask", "orders.shut_lease", "orders.release_lease"}
IN_RUN_CELLS = {"orders.new_run", "orders.stop_run", "orders.report_usage", "orders.lift_stop"}
IN_NONE = {
    "asking.ask": "a part of passage.pass_on and leases.ask",
    "orders.note_outcome": "changes no state",
}


def rules() -> Iterator[str]:
    """Every rule of authority: what takes the book and the time, and decides."""
    for module in (passage, asking, consent, closing, orders, leases):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            decides = list(inspect.signature(function).parameters)[:2] == ["book", "now"]
            decides = decides and "Decision" in str(function.__annotations__["return"])
            if decides and function.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{module.__name__.rsplit('.', 1)[1]}.{name}"


def test_every_state_and_every_event_has_its_cell() -> None:
    assert cells(REQUESTS).keys() == grid(office.REQUESTS, office.ANSWERS)
    assert cells(ACTS).keys() == grid(office.ACTS, office.USES)
    shown = {expected.split(":")[1] for expected in cells(REQUESTS).values()}
    assert shown == set(map(str, RequestState))
    assert {expected.split(":")[1] for expected in cells(ACTS).values()} == set(map(str, ActState))


def test_every_rule_of_authority_has_cells_or_a_reason_for_none() -> None:
    known = [*IN_CELLS, *IN_LEASE_CELLS, *IN_RUN_CELLS, *IN_NONE]
    assert sorted(rules()) == sorted(known)


@pytest.mark.promise("P20")
@pytest.mark.parametrize(("cell", "expected"), cells(REQUESTS).items(), ids=named)
def test_a_request_in_each_situation(cell: tuple[str, str], expected: str) -> None:
    scene = Office()
    office.REQUESTS[cell[0]](scene)
    found = office.ANSWERS[cell[1]](scene)
    assert agrees(f"{found}:{scene.state()}", expected), f"{found}:{scene.state()}"


@pytest.mark.promise("P20", "P23")
@pytest.mark.parametrize(("cell", "expected"), cells(ACTS).items(), ids=named)
def test_an_act_in_each_situation(cell: tuple[str, str], expected: str) -> None:
    scene = Office()
    office.ACTS[cell[0]](scene)
    found = office.USES[cell[1]](scene)
    assert agrees(f"{found}:{scene.act()}", expected), f"{found}:{scene.act()}"
