"""The model of tool calls and the real rules side by side: consents, budgets, clocks, restarts, lost tails."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from broker.wire.names import Instant
from tests.model.acts import SIGNERS
from tests.model.calls import GOOD
from tests.model.permit_cases import CALLS, LAYERS, ODD, POLICIES
from tests.model.permit_rows import Shown
from tests.model.reference import HOUR, MINUTE, SECOND, TOMBSTONE, Row
from tests.model.terms import WORLD

COUNTS: Counter[str] = Counter()
NAMES, TOOLS = ("a", "b"), tuple(WORLD)

usual = st.sampled_from(CALLS)
anything = st.sampled_from(CALLS + ODD)
names, which = st.sampled_from(NAMES), st.integers(0, 9)
signers = st.sampled_from(SIGNERS)
call_ids = st.sampled_from([""] * 4 + ["i", "j"])
goods = st.sampled_from([GOOD] * 6 + [frozenset(["s1"]), frozenset[str]()])
flaws = st.sampled_from([""] * 14 + ["replayed", "late", "op"])
DIFFERENT = ["args", "account", "resources", "version", "generation", "tool", "again"]
opening, lasting = st.sampled_from([0] * 6 + [30]), st.sampled_from([600, 600, 600, 45, 3600])
outcomes = st.sampled_from(["done", "done", "failed", "not_dispatched", "not_dispatched", "outcome_unknown"])


class Permission(Shown):
    """Each rule is one step, or a few that belong together."""

    counts = COUNTS

    @initialize(name=st.sampled_from(["usual", "3 calls", "3 calls", "6 calls"]))
    def two_agents(self, name: str) -> None:
        for cn in NAMES:
            self.invite(cn, 600, None, "", 0)
            self.enrol(0, None, "k1")
        self.accept({tool: 0 for tool in WORLD if tool != "other"}, "", 0)
        self.apply_policy("instance", POLICIES[name], "", 0)

    # Agents.

    def somebody(self, n: int) -> Row:
        """Mostly who it is now."""
        return self.who(n) if n == 9 else self.now_of(NAMES[n % 2], n)

    def definition(self, tool: str) -> int:
        """As it was accepted."""
        return self.model.accepted.get(tool, 0)

    @rule(n=which, what=usual, call_id=call_ids, good=goods)
    def calls(self, n: int, what: tuple[str, Row], call_id: str, good: frozenset[str]) -> None:
        tool, args = what
        self.call(self.somebody(n), tool, args, call_id, self.definition(tool), good)

    @rule(n=which, what=anything, call_id=call_ids, seen=st.sampled_from([None, 0, 0, 0, 1]))
    def calls_anything(self, n: int, what: tuple[str, Row], call_id: str, seen: int | None) -> None:
        tool, args = what
        self.call(self.somebody(n), tool, args, call_id, seen, GOOD)

    @rule(n=which, call_id=call_ids, good=goods)
    def calls_again(self, n: int, call_id: str, good: frozenset[str]) -> None:
        self.call_again(n, call_id, good)

    @rule(
        n=which,
        what=usual,
        opens=opening,
        lasts=lasting,
        signer=signers,
        times=st.integers(1, 3),
        count=st.integers(0, 3),
    )
    def is_allowed_and_calls(
        self, n: int, what: tuple[str, Row], opens: int, lasts: int, signer: str, times: int, count: int
    ) -> None:
        """Asks, is answered, and calls so often, with so much of it in one group commit."""
        tool, args = what
        who = self.now_of(NAMES[n % 2], 0)
        asked = self.call(who, tool, args, "", self.definition(tool), GOOD)
        if asked.decided and asked.decided[0] == "ok" and asked.decided[1][0] == "asked":
            self.waiting.remove(asked.decided[1][1])
            self.waiting.append(asked.decided[1][1])
            self.answer(0, "", opens, lasts, signer)
            self.held |= count > 0
            for _ in range(times):
                self.call(who, tool, args, "", self.definition(tool), GOOD)
            if count < 3:
                self.land(None)
                self.held = False

    @rule(n=which, account=st.sampled_from(["mail", "mail", "bank", "extra", "nowhere"]),
          seconds=st.sampled_from([None, None, 20, 120, 86400]))  # fmt: skip
    def asks_for_a_lease(self, n: int, account: str, seconds: int | None) -> None:
        self.ask_lease(self.somebody(n), account, seconds)

    @rule(cn=names, account=st.sampled_from(["mail", "bank"]), n=which)
    def gives_a_lease_back(self, cn: str, account: str, n: int) -> None:
        if n < 5:
            self.release(cn, account)

    @rule(n=which, outcome=outcomes)
    def a_call_ends(self, n: int, outcome: str) -> None:
        self.end(n, outcome)

    # The operator.

    @rule(n=which, flaw=st.sampled_from([""] * 6 + DIFFERENT), opens=opening, lasts=lasting, signer=signers)
    def answers(self, n: int, flaw: str, opens: int, lasts: int, signer: str) -> None:
        self.answer(n, flaw, opens, lasts, signer)

    @rule(cn=names, off=st.sampled_from([0] * 6 + [1, -1]), lasts=lasting,
          account=st.sampled_from(["mail", "mail", "bank", "nowhere"]), operations=st.sampled_from([20, 1, 2]),
          seconds=st.sampled_from([90, 90, 20, 300]), signer=signers, again=st.sampled_from([0] * 5 + [1]))  # fmt: skip
    def opens_a_lease(self, cn: str, off: int, account: str, seconds: int, operations: int, lasts: int, signer: str,
                      again: int) -> None:  # fmt: skip
        seen = [*self.model.lease_ids, *self.model.acts, *self.model.directives]
        id = seen[seconds % len(seen)] if again and seen else ""
        s = self.statement(cn, off, 0, lasts, signer, id)
        self.open_lease(s | {"account": account}, seconds, operations)

    @rule(n=which, what=anything, opens=opening, lasts=lasting, signer=signers, now=st.booleans())
    def sends_a_call(self, n: int, what: tuple[str, Row], opens: int, lasts: int, signer: str, now: bool) -> None:
        """A tool_call; now: it is consumed and called at once."""
        tool, args = what
        cn = NAMES[n % 2]
        seen = [*self.model.lease_ids, *self.model.acts]
        id = seen[n % len(seen)] if n == 9 and seen else ""
        s = self.statement(cn, 0, opens, lasts, signer, id)
        self.send_call(s, tool, args)
        if now:
            who = self.now_of(cn, 0)
            self.consume(list(reversed(self.identities)).index(who), s["id"], "", GOOD)
            self.call(who, tool, args, "", self.definition(tool), GOOD)

    @rule(n=which, attempt=st.sampled_from(["", "x"]), again=st.booleans())
    def consumes(self, n: int, attempt: str, again: bool) -> None:
        if again:
            self.consume_again(n, "")
        else:
            self.consume_well(n, attempt)

    @rule(what=st.sampled_from(["deny", "close", "revoke act", "new run", "new run", "stop run", "revoke"]), n=which,
          flaw=flaws)  # fmt: skip
    def orders(self, what: str, n: int, flaw: str) -> None:
        m = self.model
        match what:
            case "deny":
                self.deny(n, flaw)
            case "close":
                self.close_lease(_one(m.lease_ids, n), flaw, n)
            case "revoke act":
                self.revoke_act(_one(m.acts, n), flaw, n)
            case "new run":
                self.new_run((*NAMES, "nobody")[n % 3 if n > 7 else n % 2], flaw, n)
            case "stop run":
                self.stop_run(_one(m.runs, n), flaw, n)
            case _:
                self.revoke(_one(m.directives, n), flaw, n)

    @rule(name=st.sampled_from(["usual", *POLICIES]), flaw=flaws, n=which)
    def changes_the_policy(self, name: str, flaw: str, n: int) -> None:
        self.apply_policy("instance", POLICIES[name], flaw, n)

    @rule(name=st.sampled_from(["usual", *LAYERS]), flaw=flaws, n=which)
    def changes_a_layer(self, name: str, flaw: str, n: int) -> None:
        self.apply_policy("agent/a", LAYERS[name], flaw, n)

    @rule(tool=st.sampled_from(TOOLS[:4]), version=st.sampled_from([0, 1]), n=which, flaw=flaws,
          back=st.sampled_from([True, True, False]),
          what=st.sampled_from(["look", "look", "gone", "accept"]))  # fmt: skip
    def a_server_changes(self, tool: str, version: int, back: bool, n: int, flaw: str, what: str) -> None:
        """Its tools are looked at; back: what it was is accepted again."""
        if n < 6:
            return
        seen = self.model.accepted | {tool: version}
        if what == "gone":
            del seen[tool]
        if what != "accept":
            self.see(seen)
        if back or what == "accept":
            self.accept({tool: version}, flaw, n)

    @rule(n=which, flaw=flaws, lifts=st.booleans())
    def stops_everything(self, n: int, flaw: str, lifts: bool) -> None:
        if n < 3:
            self.stop_all()
            self.call_again(n, "")
        if n or lifts:
            self.lift_stop(flaw, n)

    @rule(n=which, tokens=st.sampled_from([0, 60, 100]), output=st.sampled_from([0, 150]),
          cost=st.sampled_from([0, 9_999, 10_001]))  # fmt: skip
    def reports_usage(self, n: int, tokens: int, output: int, cost: int) -> None:
        self.usage(_one(self.model.runs, n), tokens, output, cost)

    @rule(what=st.sampled_from(["enrol", "enrol", "revoke", "pause", "resume", "resume", "renew"]), cn=names, n=which)
    def identities_change(self, what: str, cn: str, n: int) -> None:
        match what:
            case "enrol":
                self.invite(cn, 600, None, "", n)
                self.enrol(0, None, "k2")
            case "revoke" if n == 0:
                self.revoke_agent(cn, "", n)
            case "pause" | "resume":
                self.pause_or_resume(cn, "", n, what == "pause" and n < 2)
            case "renew":
                self.renew(n, "k1")

    # Its clocks, its disk, its end.

    @rule(n=which, off=st.sampled_from([-1, 0, 0, 1]), how=st.sampled_from(
        ["moment"] * 5 + [SECOND, 20 * SECOND, 59 * SECOND, 61 * SECOND, 10 * MINUTE, HOUR, 25 * HOUR]))  # fmt: skip
    def time_passes(self, n: int, off: int, how: int | str) -> None:
        """On both clocks: by a while, or to the microsecond where something changes."""
        before, later = self.system.wall, sorted(at + off for at in self.moments() if at + off > self.system.wall)
        if isinstance(how, int):
            self.system.wall = Instant(before + how)
        elif later:
            self.system.wall = Instant(later[n % len(later)])
        self.boot += (self.system.wall - before) // SECOND

    @rule(
        by=st.sampled_from([-HOUR, -119 * SECOND, -30 * SECOND, 30 * SECOND]), boot=st.sampled_from([0, 30, 61, 90, 90])
    )
    def the_clocks_differ(self, by: int, boot: int) -> None:
        """The wall clock is set, or stands still while the machine sleeps."""
        self.system.wall = Instant(self.system.wall + (by if boot < 29 else 0))
        self.boot += boot
        for lease in [row for row in self.model.leases.values() if row["first"]][:2]:
            who = self.now_of(lease["cn"], 0)
            self.call(who, "read", {"account": lease["account"]}, "", self.definition("read"), GOOD)

    def moments(self) -> set[int]:
        m = self.model
        ends = {row["expires"] for row in [*m.requests.values(), *m.acts.values()]}
        ends |= {row["ended"] + TOMBSTONE for row in [*m.requests.values(), *m.acts.values()] if row["ended"]}
        for row in m.leases.values():
            ends.add(row["first"][0] + row["seconds"] * SECOND if row["first"] else row["by"])
        runs = [row for row in m.runs.values() if not row["over"]]
        return ends | {max(row["reported"], row["began"]) + 60 * SECOND for row in runs}

    @rule(count=st.sampled_from([0, 1, 2, None, None]))
    def group_commit(self, count: int | None) -> None:
        """The disk takes its time from now on, or has so many more records, or all."""
        self.land(count)
        self.held = count is not None

    @rule(bad=st.sampled_from([None] * 4 + list(SIGNERS)))
    def by_itself(self, bad: str | None) -> None:
        """The broker writes down what time has closed, or what a key signed that no longer counts."""
        if bad:
            self.uphold(bad)
        else:
            self.sweep()
            self.lapse()

    @rule(how=st.sampled_from(["stop", "kill", "disk"]), n=which)
    def the_broker_ends(self, how: str, n: int) -> None:
        if n < 4:
            return
        if how == "stop":
            self.restart()
        else:
            self.crash(how == "disk")
        self.call_again(0, "")

    @precondition(lambda self: self.behind())
    @rule()
    def accept_the_clock(self) -> None:
        self.go_on_with_an_earlier_clock()


def _one(table: dict[str, Row], n: int) -> str:
    known = list(table)
    return known[-1 - n % len(known)] if known else "none"
