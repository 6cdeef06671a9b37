"""The story of authority: every record of what an operator allows and an agent does of it, over five sessions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from broker.errors import Reason
from broker.rules import consume
from broker.rules.authority import closing, leases, orders
from broker.rules.authority.entries import ActState, RequestState
from broker.rules.authority.passage import pass_on
from broker.wire.names import Instant
from broker.wire.times import SECOND
from tests.proof import authority_promises as holding
from tests.proof.authority_cast import (
    CATALOGUE,
    LAYER,
    OTHERWISE,
    POLICY,
    SERVER,
    TOOLS,
    WHO,
    a_policy,
    ids,
    passing,
)
from tests.proof.authority_steps import AuthoritySteps
from tests.proof.cast import FIRST_ALONE, HOUR, SECOND_KEY, A, B, caller, operator
from tests.proof.life import LEASES
from tests.proof.scenario import JUMP, LOST


class AuthorityStory(AuthoritySteps):
    """One agent's calls, and the operator's answers."""

    def sessions(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        return (
            self._the_office_opens,
            self._what_was_begun_is_unknown,
            self._the_clock_is_wrong,
            self._the_clock_is_accepted,
            self._a_copy_is_restored,
        )

    # --- the sessions ---------------------------------------------------------------------------------------------

    async def _the_office_opens(self) -> None:
        async with self.life.session(self.at):
            await self._tools_are_accepted()
            await self._calls_come_to_their_ends()
            await self._acts_are_signed_and_spent()
            self.snapshot()
            await self._acts_end_unused()
            await self._mail_is_read()
            await self._a_tool_changes()
            await self._time_passes_by()
            await self._runs_are_counted()
            await self._everything_stops()
            await self._calls_are_begun()

    async def _tools_are_accepted(self) -> None:
        await self.invite(A, "ticket 1")
        await self.enrol(A, "ticket 1", "key 1", generation=1)
        await self.invite(B, "ticket 2")
        await self.enrol(B, "ticket 2", "key 2", generation=1)
        await self.refused("no tools", partial(pass_on, passing=passing("look")), Reason.UNKNOWN_TOOL)
        digests = {name: tool.digest for name, tool in TOOLS.items()}
        await self.do("tools_accept", orders.accept_tools, [holding.accepted(SERVER, digests)], raw=CATALOGUE)
        await self.refused("no policy", partial(pass_on, passing=passing("look")), Reason.DENIED_BY_DEFAULT)
        await self.apply("instance", POLICY)
        await self.apply(f"agent/{A}", LAYER)
        await self.refused("denied", partial(pass_on, passing=passing("shred", "all")), Reason.DENIED_BY_RULE)

    async def _calls_come_to_their_ends(self) -> None:
        """A call that needs nothing but the policy, in each of the ways in which it can end."""
        await self.claim("look-1", "look", spends="automatic", call_id="id-1")
        await self.repeated("look-1")
        await self.end("look-1", "done")
        await self.repeated("look-1")
        other = partial(pass_on, passing=passing("look", "else", call_id="id-1"))
        await self.refused("another call", other, Reason.CALL_ID_CONFLICT)
        for outcome in ("failed", "outcome_unknown", "not_dispatched"):
            await self.claim(f"look-{outcome}", "look", spends="automatic", call_id=f"id-{outcome}")
            await self.end(f"look-{outcome}", outcome)
        await self.claim("look-after-all", "look", spends="automatic", call_id="id-not_dispatched")
        await self.end("look-after-all", "done")

    async def _acts_are_signed_and_spent(self) -> None:
        await self.asks("one", "write_file", "one")
        await self.asks("one-again", "write_file", "one", request="one")
        await self.approve("one", "act-1")
        await self.not_approved("one", Reason.ALREADY_RESOLVED)
        await self.claim("one", "write_file", "one", spends="act/act-1", call_id="id-one")
        await self.end("one", "done")
        await self.asks("one-more", "write_file", "one")
        await self.deny("one-more", "one")
        await self.asks("two", "write_file", "two")
        await self.approve("two", "act-2")
        await self.together(
            lambda: self.call("two-x", "write_file", "two", ends={"act act-2"}),
            lambda: self.call("two-y", "write_file", "two", ends={"act act-2"}),
            lambda: self.do("act_revoke", orders.revoke_act, id="act-2", ends={"act act-2"}),
        )
        await self.end("two-x", "failed")
        await self.asks("three", "write_file", "three")
        await self.approve("three", "act-3")
        await self.claim("three", "write_file", "three", spends="act/act-3", call_id="id-three")
        await self.end("three", "not_dispatched")
        await self.claim("three-b", "write_file", "three", spends="act/act-3", call_id="id-three")
        await self.end("three-b", "done")
        await self.admit("held", bound=True)
        await self.consume("held")
        await self.claim("held", "write_file", "held", spends="act/held")
        await self.end("held", "done")

    async def _acts_end_unused(self) -> None:
        await self.asks("five", "write_file", "five")
        await self.approve("five", "act-5")
        gone = holding.over("act-5", ActState.REVOKED, passing("write_file", "five"), self.at)
        await self.do("act_revoke", orders.revoke_act, [gone], id="act-5", ends={"act act-5"})
        await self.asks("five-again", "write_file", "five")
        await self.asks("six", "write_file", "six")
        await self.approve("six", "act-6", signer=SECOND_KEY)
        gone = holding.over("act-6", ActState.INVALIDATED, passing("write_file", "six"), self.at)
        await self.take("uphold", partial(consume.uphold, standing=FIRST_ALONE), [gone], ends={"act act-6"})
        await self.asks("six-again", "write_file", "six")

    async def _mail_is_read(self) -> None:
        await self.asks("mail", "read_mail")
        await self.lease("lease-1", request="mail")
        for n in (1, 2):
            await self.claim(f"read-{n}", "read_mail", spends="lease/lease-1")
            await self.end(f"read-{n}", "done")
        await self.asks("mail-2", "read_mail")
        await self.lease("lease-2", request="mail-2", replaces="lease-1")
        await self.claim("read-3", "read_mail", spends="lease/lease-2")
        await self.end("read-3", "not_dispatched")
        await self.do("lease_close", orders.shut_lease, [holding.closed("lease-2")], id="lease-2", ends={LEASES})
        ask = partial(leases.ask, caller=WHO, account="mail", ids=ids("mail-3"))
        await self.take("lease_request", ask, [holding.waits("request-mail-3", b"{}")])
        self.keys.add("request request-mail-3")
        await self.lease("lease-3", request="mail-3")
        release = partial(orders.release_lease, cn=A, account="mail")
        await self.take("lease_release", release, [holding.closed("lease-3")], ends={LEASES})

    async def _a_tool_changes(self) -> None:
        await self.asks("seven", "write_file", "seven")
        await self.approve("seven", "act-7")
        await self.asks("eight", "write_file", "eight")
        changed = (*(tool for tool in TOOLS.values() if tool.name != "write_file"), OTHERWISE)
        keeps = [
            holding.shut("write_file"),
            holding.over("act-7", ActState.INVALIDATED, passing("write_file", "seven"), self.at),
            holding.resolved("request-eight", RequestState.INVALIDATED, self.at),
        ]
        ends = {"tools", *self.keys}
        await self.take("tools seen", partial(orders.see_tools, server=SERVER, seen=changed), keeps, ends)
        for seen in (None, OTHERWISE):
            call = partial(pass_on, passing=passing("write_file", "seven", seen=seen))
            await self.refused("changed", call, Reason.TOOL_CHANGED)
        digests = {name: tool.digest for name, tool in TOOLS.items()}
        keeps = [holding.accepted(SERVER, digests)]
        await self.do("tools_accept", orders.accept_tools, keeps, raw=CATALOGUE, ends={"tools"})

    async def _time_passes_by(self) -> None:
        await self.asks("nine", "write_file", "nine")
        await self.asks("ten", "write_file", "ten")
        await self.approve("ten", "act-10", lasts_s=300)
        await self.lease("lease-4")
        self.at = Instant(self.at + 601 * SECOND)
        keeps = [
            holding.resolved("request-nine", RequestState.EXPIRED, self.at),
            holding.over("act-10", ActState.EXPIRED, passing("write_file", "ten"), self.at),
            holding.closed("lease-4"),
        ]
        ends = {LEASES, "request request-nine", "act act-10"}
        await self.take("lapse", partial(closing.lapse, elapsed_s={}), keeps, ends)

    async def _runs_are_counted(self) -> None:
        run = self.going.get(A, "")
        calls = self.calls.get(run, 1)
        await self.apply(f"agent/{A}", a_policy("worker-a", max_tool_calls=calls))
        await self.refused("over", partial(pass_on, passing=passing("look")), Reason.BUDGET_EXCEEDED)
        figures = partial(orders.report_usage, request=operator("usage"), run=run, input_tokens=7, output_tokens=5)
        keeps = [holding.counted(run, calls, 50_000)]
        await self.take("usage", partial(figures, cost_micro=50_000), keeps, ends={f"calls {run}"})
        await self.apply(f"agent/{A}", a_policy("worker-a", max_cost_cents=5))
        await self.refused("over", partial(pass_on, passing=passing("look")), Reason.BUDGET_EXCEEDED)
        await self.apply(f"agent/{A}", LAYER)
        await self.begin_run("run-new")
        await self.claim("look-new", "look", spends="automatic")
        await self.end("look-new", "done")
        await self.do("run_stop", orders.stop_run, [holding.stopped("run-new")], run="run-new")
        await self.refused("stopped", partial(pass_on, passing=passing("look")), Reason.RUN_STOPPED)
        await self.begin_run("run-newer")

    async def _everything_stops(self) -> None:
        stop = partial(orders.stop_all, request=operator("stop"))
        await self.take("stop", stop, [holding.all_stopped(True)], ends={"stop"})
        await self.refused("stopped", partial(pass_on, passing=passing("look")), Reason.EMERGENCY_STOP)
        await self.do("stop_lift", orders.lift_stop, [holding.all_stopped(False)], ends={"stop"})

    async def _calls_are_begun(self) -> None:
        """And the broker ends before any of them does."""
        await self.claim("open", "look", spends="automatic", call_id="id-open")
        await self.asks("open-act", "write_file", "open")
        await self.approve("open-act", "act-open")
        await self.claim("open-act", "write_file", "open", spends="act/act-open", call_id="id-open-act")
        await self.lease("lease-5")
        await self.claim("open-read", "read_mail", spends="lease/lease-5", call_id="id-open-read")
        await self.asks("kept", "write_file", "kept")
        await self.approve("kept", "act-kept")
        await self.asks("still", "write_file", "still")

    async def _what_was_begun_is_unknown(self) -> None:
        async with self.life.session(self.at):
            for word in ("open", "open-act", "open-read"):
                await self.settled(word)
            await self.asks("open-act-again", "write_file", "open")
            await self.asks("mail-again", "read_mail")
            await self.claim("kept", "write_file", "kept", spends="act/act-kept")
            await self.end("kept", "outcome_unknown", answer=b'{"content":[]}')
            await self.approve("still", "act-still")
            noted = [holding.noted("claim-open-act", self.at)]
            await self.do("outcome_note", orders.note_outcome, noted, claim="claim-open-act", note="It was written.")
            stop = partial(orders.stop_all, request=operator("stop"))
            await self.take("stop", stop, [holding.all_stopped(True)], ends={"stop"})

    async def _the_clock_is_wrong(self) -> None:
        """Far ahead, with what was done long forgotten by that clock. Everything stands still until it is lifted."""
        before, self.at = self.at, Instant(self.at + JUMP)
        async with self.life.session(self.at):
            await self.refused("still", partial(pass_on, passing=passing("look")), Reason.EMERGENCY_STOP)
            await self.do("stop_lift", orders.lift_stop, [holding.all_stopped(False)], ends={"stop"})
            await self.asks("wrong", "write_file", "wrong")
            await self.asks("wrong-2", "write_file", "wrong-2")
            await self.approve("wrong-2", "act-wrong")
            await self.begin_run("run-wrong")
            await self.claim("wrong", "look", spends="automatic", call_id="id-wrong")
            self.snapshot()
        self.at = Instant(before + 10 * SECOND)

    async def _the_clock_is_accepted(self) -> None:
        async with self.life.session(self.at, accept_clock=True, ends=self.keys):
            await self.repeated("wrong")
            await self.repeated("open-act")
            await self.not_approved("wrong", Reason.ALREADY_RESOLVED)
            await self.refused("stopped", partial(pass_on, passing=passing("look")), Reason.RUN_STOPPED)
            await self.begin_run("run-right")
            await self.asks("wrong-again", "write_file", "wrong")
            await self.asks("wrong-2-again", "write_file", "wrong-2")
            await self.claim("right", "look", spends="automatic")
            await self.end("right", "done")
            await self.approve("wrong-again", "act-right")
            self.snapshot()

    async def _a_copy_is_restored(self) -> None:
        async with self.life.session(self.at, restored=LOST, ends=self.keys):
            await self.refused("barred", partial(pass_on, passing=passing("look")), Reason.AGENT_REVOKED)
            await self.not_approved("wrong-2-again", Reason.JOURNAL_RESTORED)
            self.at = Instant(self.at + 200 * SECOND)  # what was signed before counts no more
            generation = 1 + LOST + 1
            await self.invite(A, "ticket 5")
            await self.enrol(A, "ticket 5", "key 5", generation=generation)
            who = caller(A, generation)
            await self.asks("anew", "write_file", "wrong", who=who)
            await self.claim("anew", "look", spends="automatic", who=who)
            await self.end("anew", "done")
            self.at = Instant(self.at + 60 * 24 * HOUR)
            await self.drop_payloads()
            self.snapshot()
