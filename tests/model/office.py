"""Each situation that a request or an act can be in, made by real turns; and each thing that can come."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.rules import admin, consume, identity
from broker.rules.authority import closing, consent, orders
from broker.rules.authority.asking import ConsentRequired
from broker.rules.authority.passage import Claimed, Repeated, pass_on
from broker.rules.decision import Decision
from broker.wire.names import Cn, Instant
from broker.wire.records import BrokerStarted, Draft, JournalRestored
from broker.wire.times import SECOND
from broker.wire.verified import Standing
from tests.model.reference import MINUTE
from tests.model.system import System
from tests.proof import authority_cast as cast
from tests.proof.cast import BOTH, FIRST, TERMS, A, caller, digest, operator, order, request, signed_statement

Rule = Callable[..., Decision[Any]]
START = Instant(1_767_225_607 * SECOND)
REMOVED = Standing(BOTH.allowed_digest, frozenset(), frozenset((FIRST,)))
CHANGED = (*(tool for tool in cast.TOOLS.values() if tool.name != "write_file"), cast.OTHERWISE)
STRICT = cast.a_policy("strict", denied=("files.write_file",))


def word(answer: Any) -> str:
    """An answer in one word."""
    match answer:
        case Claimed():
            return "claimed"
        case Repeated(claim):
            return claim.outcome or "in_progress"
        case ConsentRequired():
            return "asked"
        case bool():
            return str(answer).lower()
        case str():
            return answer
        case _:
            return "ok"


class Office:
    """A broker with a policy and accepted tools; worker-a is enrolled, and begins by asking for a write of `d`."""

    def __init__(self) -> None:
        self.real, self.serial = System(START), 0
        self.enrol()
        self.order("tools_accept", orders.accept_tools, raw=cast.CATALOGUE)
        self.order("policy_apply", orders.apply_policy, scope="instance", raw=cast.POLICY.raw)

    def do(self, decide: Callable[..., Decision[Any]]) -> str:
        """The answer, or the reason of the refusal, in one word."""

        def decided(book: Any, now: Instant) -> Decision[Any]:
            found = decide(book, now)
            return Decision(found.drafts, word(found.answer), found.refused, found.noted)

        asked = self.real.ask(decided)
        self.real.journal.sync()
        asked.poll()
        assert asked.released
        return str(asked.released[1])

    def later(self, seconds: int) -> None:
        self.real.wall = Instant(self.real.wall + seconds * SECOND)

    def order(self, op: str, rule: Rule, **params: Any) -> str:
        self.serial += 1
        return self.do(partial(rule, order=order(op, self.real.wall, f"{op} {self.serial}"), **params))

    def enrol(self, cn: Cn = A) -> str:
        """The next generation of an agent."""
        self.serial += 1
        ticket = digest(f"ticket {self.serial}")
        self.order("agent_invite", admin.invite, cn=cn, ticket_digest=ticket, expires_s=600)
        ask, issue = request(cn, f"key {self.serial}")
        self.do(partial(identity.enrol, ticket_digest=ticket, ask=ask, issue=issue))
        return "ok"

    def call(self, path: str = "d", *, name: str = "", call_id: str = "", generation: int = 1, **how: Any) -> str:
        """A write. name: of what it begins."""
        self.serial += 1
        who = caller(A, generation)
        passing = cast.passing("write_file", path, word=name or f"{self.serial}", call_id=call_id, who=who, **how)
        return self.do(partial(pass_on, passing=passing))

    def asks(self) -> None:
        assert self.call(name="d") == "asked"

    def approve(self, path: str = "d", *, opens_s: int = 0, lasts_s: int = 300) -> str:
        """The operator signs the write of `path`, as an answer to the request for `d`."""
        self.serial += 1
        action = cast.approval("request-d", path)
        id = f"act-{self.serial}"
        verified, said = signed_statement(id, self.real.wall, opens_s=opens_s, lasts_s=lasts_s, action=action)
        decide = partial(consent.grant, request=operator("send"), verified=verified, statement=said, terms=TERMS)
        return self.do(decide)

    def deny(self) -> str:
        return self.order("request_deny", consent.deny, id="request-d", note="")

    def claim(self) -> None:
        assert self.call(name="d", call_id="the-call") == "claimed"

    def end(self, outcome: str) -> str:
        return self.do(partial(closing.end, claim="claim-d", outcome=outcome, answer=b'{"content":[]}'))

    def lapse(self) -> str:
        return self.do(partial(closing.lapse, elapsed_s={}))

    def change(self) -> str:
        """The server defines the tool otherwise, and then as before, which the operator accepts."""
        self.do(partial(orders.see_tools, server=cast.SERVER, seen=CHANGED))
        return self.order("tools_accept", orders.accept_tools, raw=cast.CATALOGUE)

    def restart(self) -> str:
        self.real.restart()
        return self.do(partial(closing.settle, started=BrokerStarted("0", 0)))

    def clock(self) -> str:
        self.order("list", admin.take)  # what is written by the clock that was ahead
        self.later(-3 * MINUTE // SECOND)
        return "ok" if self.real.accept_clock() else "nothing"

    def restored(self) -> str:
        return self.do(lambda book, now: Decision((Draft(JournalRestored(5)),)))

    def tighten(self) -> str:
        """The policy denies the tool from now on, and the call comes once more."""
        self.order("policy_apply", orders.apply_policy, scope=f"agent/{A}", raw=STRICT.raw)
        return self.call()

    def state(self) -> str:
        return str(self.real.book.ledger.requests["request-d"].state)

    def act(self) -> str:
        """The state of the one act."""
        (found,) = self.real.book.ledger.acts.values()
        return str(found.state)


def _after(*steps: Callable[[Office], Any]) -> Callable[[Office], None]:
    def make(office: Office) -> None:
        office.asks()
        for step in steps:
            step(office)

    return make


def _granted(*steps: Callable[[Office], Any], opens_s: int = 0) -> Callable[[Office], None]:
    return _after(lambda o: o.approve(opens_s=opens_s), *steps)


def _revoke(o: Office) -> str:
    return o.order("act_revoke", orders.revoke_act, id=next(iter(o.real.book.ledger.acts), "none"))


REQUESTS: dict[str, Callable[[Office], Any]] = {
    "pending": _after(),
    "overdue": _after(lambda o: o.later(600)),
    "approved": _granted(),
    "denied": _after(lambda o: o.deny()),
    "expired": _after(lambda o: o.later(600), lambda o: o.lapse()),
    "invalidated": _after(lambda o: o.change()),
}

COMMON: dict[str, Callable[[Office], str]] = {
    "lapse": lambda o: o.lapse(),
    "change": lambda o: o.change(),
    "enrol": lambda o: o.enrol(),
    "agent_revoke": lambda o: o.order("agent_revoke", admin.revoke_agent, cn=Cn(A)),
    "stop": lambda o: o.do(partial(orders.stop_all, request=operator("stop"))),
    "restart": lambda o: o.restart(),
    "clock": lambda o: o.clock(),
    "restored": lambda o: o.restored(),
}

ANSWERS: dict[str, Callable[[Office], str]] = {
    "approve": lambda o: o.approve(),
    "approve_other": lambda o: o.approve("another"),
    "deny": lambda o: o.deny(),
    "again": lambda o: o.call(),
    **COMMON,
}

ACTS: dict[str, Callable[[Office], Any]] = {
    "scheduled": _granted(opens_s=60),
    "active": _granted(),
    "closed": _granted(lambda o: o.later(300)),
    "running": _granted(lambda o: o.claim()),
    "done": _granted(lambda o: o.claim(), lambda o: o.end("done")),
    "failed": _granted(lambda o: o.claim(), lambda o: o.end("failed")),
    "unsent": _granted(lambda o: o.claim(), lambda o: o.end("not_dispatched")),
    "unknown": _granted(lambda o: o.claim(), lambda o: o.restart()),
    "expired": _granted(lambda o: o.later(300), lambda o: o.lapse()),
    "revoked": _granted(_revoke),
    "invalidated": _granted(lambda o: o.change()),
}

USES: dict[str, Callable[[Office], str]] = {
    "call": lambda o: o.call(),
    "repeat": lambda o: o.call(call_id="the-call"),
    "other": lambda o: o.call("another"),
    "revoke": _revoke,
    "unhold": lambda o: o.do(partial(consume.uphold, standing=REMOVED)),
    "tighten": lambda o: o.tighten(),
    **COMMON,
}
