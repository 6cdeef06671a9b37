"""The reference model and the real rules side by side, through time, restarts, crashes and turns in line."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from broker.wire.names import Instant
from tests.model.acts import IDS, SIGNERS
from tests.model.ends import Ends
from tests.model.reference import DAY, HOUR, MINUTE, SECOND, TOMBSTONE
from tests.model.stage import START

NAMES, ATTEMPTS, KEYS = ("a", "b", "c"), ("", "try-1", "try-2"), ("k1", "k2")

names, ids, keys = st.sampled_from(NAMES), st.sampled_from(IDS), st.sampled_from(KEYS)
attempts, which = st.sampled_from(ATTEMPTS), st.integers(0, 9)
goods = st.sampled_from([frozenset(SIGNERS)] * 4 + [frozenset(["s1"]), frozenset[str]()])
passing = st.sampled_from(
    [1, SECOND, 20 * SECOND, 59 * SECOND, 61 * SECOND, 10 * MINUTE, HOUR, 25 * HOUR, 49 * HOUR, "minute", "hour"]
    + ["moment"] * 6
)
EDGES = {"minute": MINUTE, "hour": HOUR}
backs = st.sampled_from([SECOND, 119 * SECOND, 120 * SECOND + 1, HOUR, 60 * HOUR])
near = st.sampled_from([-1, 0, 1])
flaws = st.sampled_from([""] * 12 + ["replayed", "replayed", "late", "edge", "early", "op", "instance"])
others = st.sampled_from([None] * 6 + ["a", "b"])
opening = st.sampled_from([0] * 6 + [-SECOND, 30 * SECOND, 2 * HOUR])
lasting = st.sampled_from([600 * SECOND] * 4 + [SECOND, 45 * SECOND, 23 * HOUR, DAY, 25 * HOUR])
issuing = st.sampled_from([0] * 6 + [-HOUR, 120 * SECOND, 120 * SECOND + 1])
flawed = st.sampled_from([frozenset[str]()] * 9 + [frozenset(["wrong_instance"]), frozenset(["tool_undeclared"])])


class Lifecycle(Ends):
    """Each rule is one step; after each, every answer that is out and all that is listed has been compared."""

    # The steps.

    @initialize()
    def two_agents(self) -> None:
        self.identities.append({"cn": "c", "generation": 1, "key": "k0", "cert": "old", "not_after": START + DAY})
        for cn in ("a", "b"):
            self.invite(cn, 600, None, "", 0)
            self.enrol(len(self.tickets) - 1, None, "k1")
            self.send_well(len(cn), 0, 600)

    @rule(what=st.sampled_from(["send", "consume", "consume", "again", "again", "look", "former"]), n=which,
          attempt=attempts, opens=st.sampled_from([0, 0, 30 * SECOND]), lasts=st.sampled_from([600, 45, 7200]),
          other=st.sampled_from(["", "", "attempt", "key"]))  # fmt: skip
    def goes_well(self, what: str, n: int, attempt: str, opens: int, lasts: int, other: str) -> None:
        """What happens on a good day."""
        match what:
            case "send":
                self.send_well(n, opens, lasts)
            case "consume":
                self.consume_well(n, attempt)
            case "again":
                self.consume_again(n, other)
            case "former":
                self.consume_as_another_enrolment(n, attempt)
            case _:
                self.look_and_check_well(n)

    @rule(again=st.none() | which, id=ids, cn=names, off=st.sampled_from([0] * 5 + [1, -1]), opens=opening,
          lasts=lasting, issued=issuing, signer=st.sampled_from(SIGNERS), flaws=flawed)  # fmt: skip
    def sends(self, again: int | None, id: str, cn: str, off: int, opens: int, lasts: int, issued: int,
              signer: str, flaws: frozenset[str]) -> None:  # fmt: skip
        """Whatever the operator may sign; or what was sent before, once more."""
        if again is None or again % 3:
            self.send(id, cn, off, opens, lasts, issued, signer, flaws)
        else:
            self.send_again(again)

    @rule(what=st.sampled_from(["invite", "invite", "revoke", "revoke", "agent_revoke", "pause", "resume", "list"]),
          cn=names, id=ids, flaw=flaws, n=which, again=st.none() | which,
          expires_s=st.sampled_from([30, 600, 3600]))  # fmt: skip
    def operator(self, what: str, cn: str, id: str, flaw: str, n: int, again: int | None, expires_s: int) -> None:
        match what:
            case "invite":
                self.invite(cn, expires_s, again, flaw, n)
            case "revoke":
                self.revoke(id, flaw, n)
            case "agent_revoke":
                self.revoke_agent(cn, flaw, n)
            case "list":
                self.read(flaw, n)
            case _:
                self.pause_or_resume(cn, flaw, n, what == "pause")

    @rule(what=st.sampled_from(["consume", "check", "report", "look"]), n=which, id=ids | st.just("no id!"),
          attempt=attempts, good=goods, outcome=st.sampled_from(["done", "failed"]),
          after=st.sampled_from([0, -SECOND]))  # fmt: skip
    def somebody(
        self, what: str, n: int, id: str, attempt: str, good: frozenset[str], outcome: str, after: int
    ) -> None:
        """Whoever was ever certified asks for whatever."""
        match what:
            case "consume":
                self.consume(n, id, attempt, good)
            case "check":
                self.check(n, id)
            case "report":
                self.report(n, id, outcome)
            case _:
                self.look(n, after)

    @rule(what=st.sampled_from(["enrol", "enrol", "renew"]), n=which, other=others, key=keys)
    def certify(self, what: str, n: int, other: str | None, key: str) -> None:
        if what == "enrol":
            self.enrol(n, other, key)
        else:
            self.renew(n, key)

    @rule(bad=st.sampled_from([None, *SIGNERS]))
    def by_itself(self, bad: str | None) -> None:
        """The broker writes down what has expired, or what a key signed that no longer counts."""
        if bad:
            self.uphold(bad)
        else:
            self.sweep()

    # Its disk, its clock, its end.

    @rule(count=st.sampled_from([0, 0, 1, 2, None]))
    def group_commit(self, count: int | None) -> None:
        """The disk takes its time from now on, or has so many more records, or all."""
        self.land(count)
        self.held = count is not None

    @rule(how=passing, n=which, off=near)
    def time_passes(self, how: int | str, n: int, off: int) -> None:
        """By a while, to the next edge of a minute or an hour, or to the microsecond where something changes."""
        if isinstance(how, int):
            self.system.wall = Instant(self.system.wall + how)
        elif how in EDGES:
            self.system.wall = Instant((self.system.wall // EDGES[how] + 1) * EDGES[how] + off)
        elif later := sorted(at + off for at in self.moments() if at + off > self.system.wall):
            self.system.wall = Instant(later[n % len(later)])

    def moments(self) -> set[int]:
        m, held = self.model, [row["repeat"] for row in self.model.directives.values() if row["repeat"]]
        ends = [row["expires"] for row in [*m.directives.values(), *m.tickets.values()]]
        opens = [row["opens"] for row in m.directives.values()]
        return {*ends, *opens, *(repeat[2] for repeat in held)} | {end + TOMBSTONE for end in ends}

    @rule(by=backs)
    def the_clock_goes_back(self, by: int) -> None:
        self.system.wall = Instant(self.system.wall - by)

    @rule(how=st.sampled_from(["stop", "kill", "disk"]))
    def the_broker_ends(self, how: str) -> None:
        if how == "stop":
            self.restart()
        else:
            self.crash(how == "disk")

    @precondition(lambda self: self.behind())
    @rule()
    def accept_the_clock(self) -> None:
        self.go_on_with_an_earlier_clock()
