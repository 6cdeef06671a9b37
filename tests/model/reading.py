"""Each situation that a read lease can be in, made by real turns; and each thing that can come."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from broker.rules import admin, consume, identity
from broker.rules.authority import closing, consent, leases, orders, own_calls
from broker.rules.authority.passage import pass_on
from broker.wire import policy
from broker.wire.act_records import LeaseClosed
from broker.wire.caller import Caller
from broker.wire.names import Cn
from broker.wire.policy_terms import Policy
from broker.wire.statement import LeaseAction
from broker.wire.verified import Standing
from tests.model.office import COMMON, REMOVED, Office
from tests.proof import authority_cast as cast
from tests.proof.cast import BOTH, TERMS, A, B, caller, operator, request, signed_statement

NOBODY_KNOWS = Standing(BOTH.allowed_digest, frozenset(), frozenset())
FIRST_READ_S, SECONDS, OPERATIONS = 60, 90, 2


def terms(denied: tuple[str, ...] = (), **account: Any) -> Policy:
    """The usual policy, with other terms for the account, or with tools denied."""
    value = json.loads(cast.POLICY.raw)
    value["accounts"]["mail"] = account
    value["tool_allowlist"]["denied"] += denied
    value["tool_allowlist"]["allowed"] = [name for name in value["tool_allowlist"]["allowed"] if name not in denied]
    return policy.of(value)


class Reading(Office):
    """Two operations and 90 seconds, in answer to the read of `own`, which is not made yet."""

    def __init__(self) -> None:
        super().__init__()
        self.boot = 0
        self.seen: dict[str, tuple[int, int]] = {}  # by boot time: when each lease was opened, and had its first read
        self.names = list[str]()

    # --- clocks

    def later(self, seconds: int) -> None:
        """On both clocks."""
        super().later(seconds)
        self.boot += seconds

    def sleep(self, seconds: int) -> None:
        """The wall clock stands still, or is set back, while the other one goes on."""
        self.boot += seconds

    def spans(self) -> tuple[dict[str, float], dict[str, float]]:
        """As the gateway counts them: how long ago each lease had its first read, and was opened."""
        for id, lease in self.real.book.ledger.leases.items():
            opened, first = self.seen.get(id, (self.boot, self.boot))
            self.seen[id] = opened, first if lease.started_at else self.boot
        return (
            {id: float(self.boot - first) for id, (_, first) in self.seen.items()},
            {id: float(self.boot - opened) for id, (opened, _) in self.seen.items()},
        )

    # --- steps

    def read(self, what: str = "own", *, who: Caller | None = None, standing: Standing = BOTH, name: str = "") -> str:
        self.serial += 1
        word = name or f"{self.serial}"
        passing = cast.passing("read_mail", what, word=word, who=who or caller(A, 1), standing=standing)
        elapsed_s, waited_s = self.spans()
        decide = partial(pass_on, passing=replace(passing, elapsed_s=elapsed_s, waited_s=waited_s))
        answer = self.do(decide)
        self.spans()
        return answer

    def read_that(self, outcome: str) -> str:
        """The read that asked, which comes to this."""
        answer = self.read(name="ended")
        if answer == "claimed":
            self.do(partial(closing.end, claim="claim-ended", outcome=outcome, answer=b"{}"))
        return answer

    def open(self, request: str = "") -> str:
        """The operator signs `read now`."""
        name = f"lease-{len(self.names) + 1}"
        self.names.append(name)
        action = LeaseAction("mail", SECONDS, OPERATIONS, request)
        verified, said = signed_statement(name, self.real.wall, action=action)
        grant = partial(consent.grant, request=operator("send"), verified=verified, statement=said, terms=TERMS)
        answer = self.do(grant)
        self.spans()
        return answer

    def somebody(self) -> Caller:
        """Another agent."""
        self.enrol(B)
        return caller(B, 1)

    def ask(self) -> str:
        """For a lease, before any read needs it."""
        self.serial += 1
        return self.do(partial(leases.ask, caller=caller(A, 1), account="mail", ids=cast.ids(f"{self.serial}")))

    def release(self, who: Caller) -> str:
        return self.do(partial(own_calls.release, caller=who, account="mail"))

    def close(self) -> str:
        return self.order("lease_close", orders.shut_lease, id="lease-1")

    def lapse(self) -> str:
        elapsed_s, waited_s = self.spans()
        return self.do(partial(closing.lapse, elapsed_s=elapsed_s, waited_s=waited_s))

    def stop_run(self) -> str:
        return self.order("run_stop", orders.stop_run, run="run-asks")

    def begin_run(self) -> str:
        self.order("run_new", orders.new_run, cn=Cn(A), run="run-new")
        return "ok"

    def fork(self) -> str:
        """One certificate is renewed with two keys."""
        asked = [request(A, key) for key in ("one", "two")]
        said = [self.do(partial(identity.renew, caller=caller(A, 1), ask=ask, issue=issue)) for ask, issue in asked]
        return said[-1]

    def under(self, value: Policy, then: Callable[[], str]) -> str:
        """Another policy is in force when that comes."""
        self.order("policy_apply", orders.apply_policy, scope="instance", raw=value.raw)
        return then()

    def state(self) -> str:
        """Of each lease that was opened: open, why its last record says that it is closed, or ended without one."""
        facts = (record.fact for record, _ in self.real.journal.records)
        closed = {fact.lease: fact for fact in facts if isinstance(fact, LeaseClosed)}
        return "+".join(self._told(id, closed.get(id)) for id in self.names) or "-"

    def _told(self, id: str, closed: LeaseClosed | None) -> str:
        ledger = self.real.book.ledger
        if lease := ledger.leases.get(id):
            return f"open/{lease.used}"
        ended = f"ended/{ledger.ended_leases[id].used}"
        return f"{closed.reason.replace(' ', '_')}/{closed.operations}" if closed else ended


def _opened(*steps: Callable[[Reading], Any]) -> Callable[[Reading], None]:
    def make(room: Reading) -> None:
        assert room.read(name="asks") == "asked"
        assert room.open("request-asks") == "ok"
        for step in steps:
            step(room)

    return make


def _claimed(what: str) -> Callable[[Reading], None]:
    def make(room: Reading) -> None:
        assert room.read(what) == "claimed"

    return make


LEASES: dict[str, Callable[[Reading], Any]] = {
    "none": lambda o: o.read(name="asks"),
    "waiting": _opened(),
    "running": _opened(_claimed("own")),
    "kept": _opened(_claimed("other")),
    "used_up": _opened(_claimed("own"), _claimed("other")),
    "late": _opened(_claimed("own"), lambda o: o.later(SECONDS)),
    "unread": _opened(lambda o: o.later(FIRST_READ_S)),
    "closed": _opened(_claimed("own"), lambda o: o.release(caller(A, 1))),
}


def _later(seconds: int) -> Callable[[Reading], str]:
    def pass_by(room: Reading) -> str:
        room.later(seconds)
        return room.lapse()

    return pass_by


def _asleep(room: Reading) -> str:
    room.sleep(SECONDS)
    return room.lapse()


def _set_back(room: Reading) -> str:
    """The wall clock loses a minute; the other one does not."""
    super(Reading, room).later(-FIRST_READ_S)
    return room.read()


def _shorter(room: Reading) -> str:
    room.later(45)
    return room.under(terms(lease_seconds=30, lease_operations=2), room.read)


INPUTS: dict[str, Callable[[Reading], str]] = {
    "read": lambda o: o.read("other"),
    "own": lambda o: o.read(),
    "own_failed": lambda o: o.read_that("failed"),
    "own_unsent": lambda o: o.read_that("not_dispatched"),
    "own_unsure": lambda o: o.read(standing=NOBODY_KNOWS),
    "by_other": lambda o: o.read(who=o.somebody()),
    "ask": lambda o: o.ask(),
    "release": lambda o: o.release(caller(A, 1)),
    "release_other": lambda o: o.release(o.somebody()),
    "close": lambda o: o.close(),
    "replace": lambda o: o.open(),
    "pause": lambda o: o.order("agent_pause", admin.pause, cn=Cn(A)),
    "fork": lambda o: o.fork(),
    "run_stop": lambda o: o.stop_run(),
    "run_new": lambda o: o.begin_run(),
    "unhold": lambda o: o.do(partial(consume.uphold, standing=REMOVED)),
    "fewer": lambda o: o.under(terms(lease_operations=1, lease_seconds=90), o.read),
    "shorter": _shorter,
    "longer": lambda o: o.under(terms(lease_seconds=300, lease_operations=100), o.read),
    "sensitive": lambda o: o.under(terms(sensitive=True), o.read),
    "denied": lambda o: o.under(terms(("files.read_mail",)), o.read),
    "later_59": _later(FIRST_READ_S - 1),
    "later_60": _later(FIRST_READ_S),
    "later_90": _later(SECONDS),
    "asleep": _asleep,
    "set_back": _set_back,
    **{name: COMMON[name] for name in ("enrol", "agent_revoke", "stop", "restart", "clock", "restored")},
}
