"""Every state of a run, and of the emergency stop, with everything that can come: each cell is written from the design.

A cell is the answer and, behind the colon, what is there afterwards: of each run whether it goes on and how many calls
it counts, or whether everything is stopped.
"""

from __future__ import annotations

import pytest

from tests.model import running
from tests.model.running import Running
from tests.model.test_cells import agrees, cells, grid, named

RUNS = """
            call                      unsent                    run_new               new_and_call
none        claimed:on/1              claimed:on/0              ok:on/0               claimed:on/1
going       claimed:on/2              claimed:on/1              ok:over/1+on/0        claimed:over/1+on/1
used_up     budget_exceeded:on/1      budget_exceeded:on/1      ok:over/1+on/0        claimed:over/1+on/1
unreported  usage_unreported:on/1     usage_unreported:on/1     ok:over/1+on/0        claimed:over/1+on/1
stopped     run_stopped:over/1        run_stopped:over/1        ok:over/1+on/0        claimed:over/1+on/1
replaced    claimed:over/1+on/1       claimed:over/1+on/0       ok:over/1+over/0+on/0 claimed:over/1+over/0+on/1

            run_stop              usage                 usage_of              usage_and_call
none        false:-               nothing:-             nothing:-             claimed:on/1
going       true:over/1           added:on/1            added:on/1            claimed:on/2
used_up     true:over/1           added:on/1            added:on/1            budget_exceeded:on/1
unreported  true:over/1           added:on/1            added:on/1            claimed:on/2
stopped     false:over/1          nothing:over/1        nothing:over/1        run_stopped:over/1
replaced    false:over/1+on/0     nothing:over/1+on/0   added:over/1+on/0     claimed:over/1+on/1

            much_and_call             larger_and_call           enrol                 enrol_and_call
none        claimed:on/1              claimed:on/1              ok:-                  claimed:on/1
going       budget_exceeded:on/1      claimed:on/2              ok:over/1             claimed:over/1+on/1
used_up     budget_exceeded:on/1      claimed:on/2              ok:over/1             claimed:over/1+on/1
unreported  budget_exceeded:on/1      claimed:on/2              ok:over/1             claimed:over/1+on/1
stopped     run_stopped:over/1        run_stopped:over/1        ok:over/1             claimed:over/1+on/1
replaced    budget_exceeded:over/1+on/0  claimed:over/1+on/1    ok:over/1+over/0      claimed:over/1+over/0+on/1

            agent_revoke         restart           restart_and_call       clock                 restored
none        true:-               ok:-              claimed:on/1           ok:-                  ok:-
going       true:over/1          ok:on/1           claimed:on/2           ok:over/1             ok:over/1
used_up     true:over/1          ok:on/1           budget_exceeded:on/1   ok:over/1             ok:over/1
unreported  true:over/1          ok:on/1           usage_unreported:on/1  ok:over/1             ok:over/1
stopped     true:over/1          ok:over/1         run_stopped:over/1     ok:over/1             ok:over/1
replaced    true:over/1+over/0   ok:over/1+on/0    claimed:over/1+on/1    ok:over/1+over/0      ok:over/1+over/0
"""

STOPS = """
           stop      lift      lift_twice            call               ask                lease_request
off        true:on   false:off envelope_replayed:on  claimed:off        asked:off          asked:off
on         false:on  true:off  envelope_replayed:on  emergency_stop:on  emergency_stop:on  emergency_stop:on
lifted     true:on   false:off envelope_replayed:on  claimed:off        asked:off          asked:off
restarted  false:on  true:off  envelope_replayed:on  emergency_stop:on  emergency_stop:on  emergency_stop:on

           consume            approve            deny    run_new  enrol   restart  clock   restored
off        ok:off             ok:off             ok:off  ok:off   ok:off  ok:off   ok:off  ok:off
on         emergency_stop:on  emergency_stop:on  ok:on   ok:on    ok:on   ok:on    ok:on   ok:on
lifted     ok:off             ok:off             ok:off  ok:off   ok:off  ok:off   ok:off  ok:off
restarted  emergency_stop:on  emergency_stop:on  ok:on   ok:on    ok:on   ok:on    ok:on   ok:on
"""


def test_every_state_and_every_event_has_its_cell() -> None:
    assert cells(RUNS).keys() == grid(running.RUNS, running.RUN_INPUTS)
    assert cells(STOPS).keys() == grid(running.STOPS, running.STOP_INPUTS)


@pytest.mark.promise("P24")
@pytest.mark.parametrize(("cell", "expected"), cells(RUNS).items(), ids=named)
def test_a_run_in_each_situation(cell: tuple[str, str], expected: str) -> None:
    scene = Running()
    running.RUNS[cell[0]](scene)
    found = running.RUN_INPUTS[cell[1]](scene)
    assert agrees(f"{found}:{scene.runs()}", expected), f"{found}:{scene.runs()}"


@pytest.mark.promise("P20")
@pytest.mark.parametrize(("cell", "expected"), cells(STOPS).items(), ids=named)
def test_the_emergency_stop_in_each_situation(cell: tuple[str, str], expected: str) -> None:
    scene = Running()
    running.STOPS[cell[0]](scene)
    found = running.STOP_INPUTS[cell[1]](scene)
    assert agrees(f"{found}:{scene.stop_state()}", expected), f"{found}:{scene.stop_state()}"
