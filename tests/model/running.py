"""Each situation that an agent's run, and the emergency stop, can be in; and each thing that can come to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.rules import admit, consume
from broker.rules.admin import Order
from broker.rules.authority import closing, leases, orders
from broker.rules.authority.passage import pass_on
from broker.wire.policy_terms import Policy
from tests.model.office import COMMON, Office
from tests.proof import authority_cast as cast
from tests.proof.cast import BOTH, TERMS, A, caller, operator, order, signed_statement

ONE_CALL = cast.a_policy("one", max_tool_calls=1)
TOKENS = cast.a_policy("tokens", max_input_tokens=100)


class Running(Office):
    """worker-a may call a tool that needs nothing but the policy; nothing was called yet."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def look(self, outcome: str = "done", *, generation: int = 1) -> str:
        """A call, which comes to this."""
        self.serial += 1
        word = f"{self.serial}"
        passing = cast.passing("look", word=word, who=caller(A, generation))
        answer = self.do(partial(pass_on, passing=passing))
        if answer == "claimed":
            self.do(partial(closing.end, claim=f"claim-{word}", outcome=outcome, answer=b"{}"))
        return answer

    def under(self, value: Policy, then: Callable[[], str] = str) -> str:
        """Another policy is in force when that comes."""
        self.order("policy_apply", orders.apply_policy, scope="instance", raw=value.raw)
        return then()

    def begin(self) -> str:
        self.begun += 1
        self.order("run_new", orders.new_run, cn=A, run=f"run-new-{self.begun}")
        return "ok"

    def end_first(self) -> str:
        first = next(iter(self.real.book.ledger.runs), "none")
        return self.order("run_stop", orders.stop_run, run=first)

    def usage(self, tokens: int = 1, **whose: str) -> str:
        """Figures of the first run, or of the one that this agent is in."""
        run = "" if whose else next(iter(self.real.book.ledger.runs), "none")
        figures = partial(orders.report_usage, request=operator("usage"), run=run, output_tokens=0, cost_micro=0)
        return "added" if self.do(partial(figures, input_tokens=tokens, **whose)) else "nothing"

    def runs(self) -> str:
        """Of each run whether it goes on, and how many calls it counts."""
        told = self.real.book.ledger.runs.values()
        return "+".join(f"{'over' if run.stopped else 'on'}/{run.calls}" for run in told) or "-"

    # --- the emergency stop

    def halt(self) -> str:
        return self.do(partial(orders.stop_all, request=operator("stop")))

    def lift(self) -> str:
        return self.order("stop_lift", orders.lift_stop)

    def lift_twice(self) -> str:
        """One signature, before and after another stop."""
        again = order("stop_lift", self.real.wall, "once")
        self.halt()
        self._lift(again)
        self.halt()
        return self._lift(again)

    def _lift(self, signed: Order) -> str:
        return self.do(partial(orders.lift_stop, order=signed))

    def consumes(self) -> str:
        verified, said = signed_statement("advice", self.real.wall)
        self.do(partial(admit.admit, request=operator("send"), verified=verified, statement=said, terms=TERMS))
        take = partial(consume.consume, caller=caller(A, 1), raw_id="advice", attempt="", standing=BOTH, repeat_s=60)
        return self.do(take)

    def asks_beforehand(self) -> str:
        return self.do(partial(leases.ask, caller=caller(A, 1), account="mail", ids=cast.ids("beforehand")))

    def stop_state(self) -> str:
        return "on" if self.real.book.ledger.stopped_at else "off"


def _after(*steps: Callable[[Running], Any]) -> Callable[[Running], None]:
    def make(room: Running) -> None:
        for step in steps:
            step(room)

    return make


def _looked(room: Running) -> None:
    assert room.look() == "claimed"


RUNS: dict[str, Callable[[Running], Any]] = {
    "none": _after(),
    "going": _after(_looked),
    "used_up": _after(_looked, lambda o: o.under(ONE_CALL)),
    "unreported": _after(_looked, lambda o: o.under(TOKENS), lambda o: o.later(61)),
    "stopped": _after(_looked, lambda o: o.end_first()),
    "replaced": _after(_looked, lambda o: o.begin()),
}

RUN_INPUTS: dict[str, Callable[[Running], str]] = {
    "call": lambda o: o.look(),
    "unsent": lambda o: o.look("not_dispatched"),
    "run_new": lambda o: o.begin(),
    "new_and_call": lambda o: o.begin() and o.look(),
    "run_stop": lambda o: o.end_first(),
    "usage": lambda o: o.usage(),
    "usage_of": lambda o: o.usage(agent=A),
    "usage_and_call": lambda o: o.usage(agent=A) and o.look(),
    "much_and_call": lambda o: o.under(TOKENS, lambda: o.usage(100, agent=A) and o.look()),
    "larger_and_call": lambda o: o.under(cast.POLICY, o.look),
    "enrol": lambda o: o.enrol(),
    "enrol_and_call": lambda o: o.enrol() and o.look(generation=2),
    "agent_revoke": COMMON["agent_revoke"],
    "restart": lambda o: o.restart(),
    "restart_and_call": lambda o: o.restart() and o.look(),
    "clock": lambda o: o.clock(),
    "restored": lambda o: o.restored(),
}

STOPS: dict[str, Callable[[Running], Any]] = {
    "off": _after(lambda o: o.asks()),
    "on": _after(lambda o: o.asks(), lambda o: o.halt()),
    "lifted": _after(lambda o: o.asks(), lambda o: o.halt(), lambda o: o.lift()),
    "restarted": _after(lambda o: o.asks(), lambda o: o.halt(), lambda o: o.restart()),
}

STOP_INPUTS: dict[str, Callable[[Running], str]] = {
    "stop": lambda o: o.halt(),
    "lift": lambda o: o.lift(),
    "lift_twice": lambda o: o.lift_twice(),
    "call": lambda o: o.look(),
    "ask": lambda o: o.call("another"),
    "lease_request": lambda o: o.asks_beforehand(),
    "consume": lambda o: o.consumes(),
    "approve": lambda o: o.approve(),
    "deny": lambda o: o.deny(),
    "run_new": lambda o: o.begin(),
    "enrol": lambda o: o.enrol(),
    "restart": lambda o: o.restart(),
    "clock": lambda o: o.clock(),
    "restored": lambda o: o.restored(),
}
