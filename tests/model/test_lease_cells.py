"""Every state of a read lease with everything that can come: each cell is written from the design.

A cell is the answer and, behind the colon, the lease and how many operations it had: open, why the record of its end
says that it is closed, or `ended` where there is no such record. Another lease stands behind a `+`. The read that asked
for it is `own`; it has 2 operations, 90 s, and 60 s to wait for the first.
"""

from __future__ import annotations

import pytest

from tests.model import reading
from tests.model.reading import Reading
from tests.model.test_cells import agrees, cells, grid, named

LEASES = """
          read              own               own_failed        own_unsent
none      asked:-           asked:-           asked:-           asked:-
waiting   claimed:open/1    claimed:open/1    claimed:open/1    claimed:open/0
running   claimed:open/2    claimed:open/2    claimed:open/2    claimed:open/1
kept      asked:open/1      claimed:open/2    claimed:open/2    claimed:open/1
used_up   asked:open/2      asked:open/2      asked:open/2      asked:open/2
late      asked:open/1      asked:open/1      asked:open/1      asked:open/1
unread    asked:open/0      asked:open/0      asked:open/0      asked:open/0
closed    asked:released/1  asked:released/1  asked:released/1  asked:released/1

          own_unsure                  by_other          release           release_other     close
none      asked:-                     asked:-           false:-           false:-           false:-
waiting   signers_unavailable:open/0  asked:open/0      true:released/0   false:open/0      true:operator/0
running   signers_unavailable:open/1  asked:open/1      true:released/1   false:open/1      true:operator/1
kept      signers_unavailable:open/1  asked:open/1      true:released/1   false:open/1      true:operator/1
used_up   asked:open/2                asked:open/2      true:released/2   false:open/2      true:operator/2
late      asked:open/1                asked:open/1      true:released/1   false:open/1      true:operator/1
unread    asked:open/0                asked:open/0      true:released/0   false:open/0      true:operator/0
closed    asked:released/1            asked:released/1  false:released/1  false:released/1  false:released/1

          replace                pause            fork                           run_stop         run_new
none      ok:open/0              true:-           certificate_forked:-           true:-           ok:-
waiting   ok:replaced/0+open/0   true:paused/0    certificate_forked:frozen/0    true:run_over/0  ok:run_over/0
running   ok:replaced/1+open/0   true:paused/1    certificate_forked:frozen/1    true:run_over/1  ok:run_over/1
kept      ok:replaced/1+open/0   true:paused/1    certificate_forked:frozen/1    true:run_over/1  ok:run_over/1
used_up   ok:replaced/2+open/0   true:paused/2    certificate_forked:frozen/2    true:run_over/2  ok:run_over/2
late      ok:replaced/1+open/0   true:paused/1    certificate_forked:frozen/1    true:run_over/1  ok:run_over/1
unread    ok:replaced/0+open/0   true:paused/0    certificate_forked:frozen/0    true:run_over/0  ok:run_over/0
closed    ok:released/1+open/0   true:released/1  certificate_forked:released/1  true:released/1  ok:released/1

          unhold                 fewer             shorter           longer            sensitive
none      ok:-                   asked:-           asked:-           asked:-           asked:-
waiting   ok:key_not_standing/0  claimed:open/1    claimed:open/1    claimed:open/1    asked:open/0
running   ok:key_not_standing/1  asked:open/1      asked:open/1      claimed:open/2    asked:open/1
kept      ok:key_not_standing/1  asked:open/1      asked:open/1      claimed:open/2    asked:open/1
used_up   ok:key_not_standing/2  asked:open/2      asked:open/2      asked:open/2      asked:open/2
late      ok:key_not_standing/1  asked:open/1      asked:open/1      asked:open/1      asked:open/1
unread    ok:key_not_standing/0  asked:open/0      asked:open/0      asked:open/0      asked:open/0
closed    ok:released/1          asked:released/1  asked:released/1  asked:released/1  asked:released/1

          denied                     later_59          later_60          later_90          asleep
none      denied_by_rule:-           ok:-              ok:-              ok:-              ok:-
waiting   denied_by_rule:open/0      ok:open/0         ok:time/0         ok:time/0         ok:time/0
running   denied_by_rule:open/1      ok:open/1         ok:open/1         ok:time/1         ok:time/1
kept      denied_by_rule:open/1      ok:open/1         ok:open/1         ok:time/1         ok:time/1
used_up   denied_by_rule:open/2      ok:operations/2   ok:operations/2   ok:operations/2   ok:operations/2
late      denied_by_rule:open/1      ok:time/1         ok:time/1         ok:time/1         ok:time/1
unread    denied_by_rule:open/0      ok:time/0         ok:time/0         ok:time/0         ok:time/0
closed    denied_by_rule:released/1  ok:released/1     ok:released/1     ok:released/1     ok:released/1

          set_back          enrol               agent_revoke     stop             restart        clock
none      asked:-           ok:-                true:-           true:-           ok:-           ok:-
waiting   claimed:open/1    ok:enrolled_anew/0  true:revoked/0   true:open/0      ok:restart/0   ok:ended/0
running   claimed:open/2    ok:enrolled_anew/1  true:revoked/1   true:open/1      ok:restart/1   ok:ended/1
kept      claimed:open/2    ok:enrolled_anew/1  true:revoked/1   true:open/1      ok:restart/1   ok:ended/1
used_up   asked:open/2      ok:enrolled_anew/2  true:revoked/2   true:open/2      ok:restart/2   ok:ended/2
late      asked:open/1      ok:enrolled_anew/1  true:revoked/1   true:open/1      ok:restart/1   ok:ended/1
unread    asked:open/0      ok:enrolled_anew/0  true:revoked/0   true:open/0      ok:restart/0   ok:ended/0
closed    asked:released/1  ok:released/1       true:released/1  true:released/1  ok:released/1  ok:released/1

          restored        ask
none      ok:-            asked:-
waiting   ok:ended/0      asked:open/0
running   ok:ended/1      asked:open/1
kept      ok:ended/1      asked:open/1
used_up   ok:ended/2      asked:open/2
late      ok:ended/1      asked:open/1
unread    ok:ended/0      asked:open/0
closed    ok:released/1   asked:released/1
"""


def test_every_state_and_every_event_has_its_cell() -> None:
    assert cells(LEASES).keys() == grid(reading.LEASES, reading.INPUTS)


@pytest.mark.promise("P21")
@pytest.mark.parametrize(("cell", "expected"), cells(LEASES).items(), ids=named)
def test_a_lease_in_each_situation(cell: tuple[str, str], expected: str) -> None:
    scene = Reading()
    reading.LEASES[cell[0]](scene)
    found = reading.INPUTS[cell[1]](scene)
    assert agrees(f"{found}:{scene.state()}", expected), f"{found}:{scene.state()}"
