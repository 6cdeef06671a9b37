"""Each situation that a directive, an agent or a ticket can be in, made by real turns; and each thing that can come."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.rules import admin
from broker.rules.decision import Decision
from broker.rules.sweep import sweep
from broker.wire.names import Cn, DirectiveId, Instant
from broker.wire.records import Draft, JournalRestored
from tests.model import system
from tests.model.reference import DAY, HOUR, MINUTE, SECOND, Row
from tests.model.system import INSTANCE, Decide, Made, System, digest

START = 1_767_225_607 * SECOND  # no edge of a minute: what is forgotten by the minute is not yet
BOTH = frozenset(["s1", "s2"])
LASTS = 600 * SECOND


class Scene:
    """A broker on which each request is durable at once; agent a is enrolled for the second time, and b."""

    def __init__(self) -> None:
        self.real, self.serial = System(Instant(START)), 0
        self.former = self.enrolled("a")
        self.a = self.enrolled("a")
        self.b = self.enrolled("b")

    def do(self, decide: Decide) -> str:
        """The answer in one word."""
        asked = self.real.ask(decide)
        self.real.journal.sync()
        asked.poll()
        assert asked.released == asked.decided
        how, value = asked.released or ("", None)
        if how == "no" or isinstance(value, str):
            return str(value)
        return {True: "true", False: "false"}.get(value, "ok") if isinstance(value, bool) else "ok"

    def later(self, by: int) -> int:
        self.real.wall = Instant(self.real.wall + by)
        return self.real.wall

    def until(self, at: int) -> None:
        self.real.wall = Instant(at)

    def word(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def envelope(self, op: str) -> Row:
        return {"digest": self.word("e"), "op": op, "instance": INSTANCE, "issued": self.real.wall}

    def order(self, op: str, rule: Any, e: Row | None = None, **params: Any) -> str:
        signed = system.order(e or self.envelope(op), op)
        return self.do(partial(rule, order=signed, **params))

    def invite(self, cn: str, ticket: str = "", expires_s: int = 600) -> str:
        params: Row = {"cn": Cn(cn), "ticket_digest": digest(ticket or self.word("t")), "expires_s": expires_s}
        return self.order("agent_invite", admin.invite, **params)

    def made(self) -> Made:
        pem = self.word("cert")
        return Made(pem, digest(pem), Instant(self.real.wall + 30 * DAY))

    def enrolled(self, cn: str) -> Row:
        """A new enrolment; the identity that comes of it."""
        ticket, made = self.word("t"), self.made()
        self.invite(cn, ticket)
        assert self.do(system.enrols(ticket, cn, f"key-{cn}", made)) == "ok"
        generation = self.real.agent_rows(self.real.wall)[cn]["generation"]
        at = {"cn": cn, "generation": generation, "key": f"key-{cn}", "cert": made.pem}
        return at | {"not_after": made.not_after_at}

    def send(self, cn: str = "a", opens: int = 0) -> str:
        generation = self.real.agent_rows(self.real.wall).get(cn, {"generation": 1})["generation"]
        at = self.real.wall
        return self.do(system.send({
            "id": "d", "cn": cn, "generation": generation, "issued": at, "opens": at + opens, "expires": at + LASTS,
            "signer": "s1", "flaws": frozenset(), "bound": False, "raw": self.word("statement-").encode(),
        }))  # fmt: skip

    def consume(self, who: Row, attempt: str = "") -> str:
        return self.do(system.consumes(who, "d", attempt, BOTH))

    def state(self, id: str = "d") -> str:
        return str(self.real.rows(self.real.wall).get(id, {"state": "-"})["state"])

    def agent(self, cn: str = "a") -> str:
        return str(self.real.agent_rows(self.real.wall).get(cn, {"state": "-"})["state"])

    def uphold(self) -> str:
        return self.do(system.upholds("s1"))

    def revoke(self) -> str:
        return self.order("revoke", admin.revoke, id=DirectiveId("d"))

    def on_name(self, op: str, cn: str = "a") -> str:
        rules = {"agent_revoke": admin.revoke_agent, "agent_pause": admin.pause, "agent_resume": admin.resume}
        return self.order(op, rules[op], cn=Cn(cn))

    def renew(self, who: Row, key: str) -> str:
        return self.do(system.renews(who, key, self.made()))

    def set_clock_back(self) -> str:
        self.do(system.checks(self.b, "nothing"))
        self.later(-3 * MINUTE)
        return "ok" if self.real.accept_clock() else "nothing"

    def restored(self) -> str:
        """The operator said that the state folder is an older copy."""
        word = self.do(lambda book, now: Decision((Draft(JournalRestored(5)),), True))
        self.later(3 * MINUTE)
        return word


def _sent(scene: Scene, *then: Callable[[Scene], Any]) -> None:
    scene.send()
    for step in then:
        step(scene)


DIRECTIVES: dict[str, Callable[[Scene], Any]] = {
    "none": lambda s: None,
    "scheduled": lambda s: s.send(opens=5 * MINUTE),
    "active": lambda s: _sent(s),
    "closed": lambda s: _sent(s, lambda s: s.later(LASTS)),
    "consumed": lambda s: _sent(s, lambda s: s.consume(s.a)),
    "repeatable": lambda s: _sent(s, lambda s: s.consume(s.a, "x")),
    "unrepeatable": lambda s: _sent(s, lambda s: s.consume(s.a, "x"), lambda s: s.later(MINUTE)),
    "revoked": lambda s: _sent(s, lambda s: s.revoke()),
    "invalidated": lambda s: _sent(s, lambda s: s.uphold()),
    "expired": lambda s: _sent(s, lambda s: s.later(LASTS), lambda s: s.do(sweep)),
    "forgotten": lambda s: _sent(s, lambda s: s.revoke(), lambda s: s.later(50 * HOUR)),
}

INPUTS: dict[str, Callable[[Scene], str]] = {
    "consume": lambda s: s.consume(s.a, "y"),
    "again": lambda s: s.consume(s.a, "x"),
    "by_other": lambda s: s.consume(s.b, "x"),
    "check": lambda s: s.do(system.checks(s.a, "d")),
    "check_other": lambda s: s.do(system.checks(s.b, "d")),
    "by_former": lambda s: s.consume(s.former, "x"),
    "check_former": lambda s: s.do(system.checks(s.former, "d")),
    "report": lambda s: s.do(system.reports(s.a, "d", "done")),
    "revoke": lambda s: s.revoke(),
    "send": lambda s: s.send(),
    "enrol": lambda s: "ok" if s.enrolled("a") else "",
    "agent_revoke": lambda s: s.on_name("agent_revoke"),
    "agent_pause": lambda s: s.on_name("agent_pause"),
    "uphold": lambda s: s.uphold(),
    "sweep": lambda s: s.do(sweep),
    "clock": lambda s: s.set_clock_back(),
    "restored": lambda s: s.restored(),
}


def _frozen(s: Scene) -> None:
    s.renew(s.a, "k1")
    s.renew(s.a, "k2")


AGENTS: dict[str, Callable[[Scene], Any]] = {
    "unknown": lambda s: s.a.update(cn="c", generation=1),
    "enrolled": lambda s: None,
    "paused": lambda s: s.on_name("agent_pause"),
    "revoked": lambda s: s.on_name("agent_revoke"),
    "frozen": _frozen,
    "replaced": lambda s: s.enrolled("a"),
    "restored": lambda s: s.restored(),
    "ended": lambda s: s.until(s.a["not_after"]),
}

AGENT_INPUTS: dict[str, Callable[[Scene], str]] = {
    "consume": lambda s: s.consume(s.a),
    "check": lambda s: s.do(system.checks(s.a, "d")),
    "report": lambda s: s.do(system.reports(s.a, "d", "done")),
    "inbox": lambda s: s.do(system.looks(s.a, 0)),
    "renew": lambda s: s.renew(s.a, "k1"),
    "fork": lambda s: s.renew(s.a, "k1") and s.renew(s.a, "k3"),
    "send": lambda s: s.send(s.a["cn"]),
    "enrol": lambda s: "ok" if s.enrolled(s.a["cn"]) else "",
    "agent_revoke": lambda s: s.on_name("agent_revoke", s.a["cn"]),
    "agent_pause": lambda s: s.on_name("agent_pause", s.a["cn"]),
    "agent_resume": lambda s: s.on_name("agent_resume", s.a["cn"]),
    "clock": lambda s: s.set_clock_back(),
    "restored": lambda s: s.restored(),
}

TICKETS: dict[str, Callable[[Scene], Any]] = {
    "unknown": lambda s: None,
    "open": lambda s: s.invite("a", "T"),
    "expired": lambda s: s.invite("a", "T", 90) and s.later(90 * SECOND),
    "spent": lambda s: [s.invite("a", "T"), redeem(s, "a", "k1")],
    "long_spent": lambda s: s.invite("a", "T") and redeem(s, "a", "k1") and s.later(MINUTE),
    "void": lambda s: [s.invite("a", "T"), s.invite("a")],
    "shut_out": lambda s: [s.invite("a", "T"), s.on_name("agent_revoke")],
    "set_back": lambda s: [s.invite("a", "T"), s.set_clock_back()],
    "restored": lambda s: [s.invite("a", "T"), s.restored()],
}


def redeem(s: Scene, cn: str, key: str) -> str:
    return s.do(system.enrols("T", cn, key, s.made()))


REDEMPTIONS: dict[str, Callable[[Scene], str]] = {
    "right": lambda s: redeem(s, "a", "k1"),
    "other_key": lambda s: redeem(s, "a", "k2"),
    "other_name": lambda s: redeem(s, "b", "k1"),
    "invited_again": lambda s: s.invite("a", "T"),
}

_PARAMS: dict[str, Row] = {
    "take": {},
    "revoke": {"id": DirectiveId("d")},
    "invite": {"cn": Cn("c"), "ticket_digest": digest("T"), "expires_s": 600},
    "revoke_agent": {"cn": Cn("a")},
    "pause": {"cn": Cn("a")},
    "resume": {"cn": Cn("a")},
}
ORDERED = {"take": "ok", "revoke": "false", "invite": "ok", "revoke_agent": "true", "pause": "true", "resume": "false"}
_CHANGES: dict[str, Row] = {
    "oldest": {"issued": START - 2 * MINUTE},
    "newest": {"issued": START + 2 * MINUTE},
    "late": {"issued": START - 2 * MINUTE - 1},
    "early": {"issued": START + 2 * MINUTE + 1},
    "of another order": {"op": "another"},
    "of another instance": {"instance": "another"},
}


def ordered(scene: Scene, op: str, case: str) -> str:
    """One order of the operator, in an envelope of one kind."""
    e = scene.envelope(op) | _CHANGES.get(case, {})
    if case == "used":
        scene.order(op, getattr(admin, op), e, **_PARAMS[op])
    return scene.order(op, getattr(admin, op), e, **_PARAMS[op])
