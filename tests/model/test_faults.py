"""Faults of the rules that the model has found, one by one, so that each is told by its name if it comes back."""

from __future__ import annotations

from typing import Any

from broker.errors import Reason
from broker.rules import admin
from broker.rules.sweep import sweep
from broker.wire.names import Cn, DirectiveId, Instant
from tests.model import system
from tests.model.reference import DAY, HOUR, MINUTE, SECOND, Row
from tests.model.system import INSTANCE, Made, System, digest

START = 1_767_225_600 * SECOND


def opened() -> tuple[System, Row]:
    """A broker with one agent."""
    real, who = (
        System(Instant(START)),
        {"cn": "a", "generation": 1, "key": "k", "cert": "c1", "not_after": START + 30 * DAY},
    )
    order(real, "agent_invite", admin.invite, cn=Cn("a"), ticket_digest=digest("t"), expires_s=600)
    real.ask(system.enrols("t", "a", "k", Made("c1", digest("c1"), Instant(START + 30 * DAY))))
    real.journal.sync()
    return real, who


def order(real: System, op: str, rule: object, e: Row | None = None, **params: object) -> Any:
    e = e or {"digest": f"{op}-{real.wall}", "op": op, "instance": INSTANCE, "issued": real.wall}
    asked = real.ask(lambda book, now: rule(book, now, order=system.order(e, op), **params))  # type: ignore[operator]
    real.journal.sync()
    return asked.decided or asked.released


def statement(at: int, lasts: int = 600 * SECOND) -> Row:
    return {"id": "d", "cn": "a", "generation": 1, "issued": at, "opens": at, "expires": at + lasts, "signer": "s1",
            "flaws": frozenset(), "bound": False, "raw": b"statement"}  # fmt: skip


def done(real: System, decide: system.Decide) -> Any:
    asked = real.ask(decide)
    real.journal.sync()
    return asked.decided or asked.released


def set_back(real: System, to: int) -> None:
    real.wall = Instant(to)
    real.accept_clock()


GOOD = frozenset(["s1"])


def test_a_clock_that_is_wrong_for_one_tick_forgets_nothing() -> None:
    real, who = opened()
    s = statement(START, 20 * HOUR)
    assert done(real, system.send(s)) == ("ok", ("d", False))
    assert done(real, system.consumes(who, "d", "", GOOD)) == ("ok", b"statement")
    real.wall = Instant(START + 100 * HOUR)
    done(real, sweep)  # the tick of every second: nothing is due, nothing is written
    real.wall = Instant(START + MINUTE)
    assert done(real, system.send(s))[0] == "no"
    assert done(real, system.consumes(who, "d", "", GOOD))[0] == "no"


def test_a_used_envelope_stays_used_when_the_clock_was_wrong_for_one_tick() -> None:
    real, _ = opened()
    e = {"digest": "e", "op": "list", "instance": INSTANCE, "issued": START}
    assert order(real, "list", admin.take, e) == ("ok", None)
    real.wall = Instant(START + HOUR)
    done(real, sweep)
    real.wall = Instant(START + SECOND)
    assert order(real, "list", admin.take, e)[0] == "no"


def test_an_id_used_again_in_a_time_that_is_taken_back_has_a_tombstone_of_its_own() -> None:
    real, _ = opened()
    assert done(real, system.send(statement(START))) == ("ok", ("d", False))
    assert order(real, "revoke", admin.revoke, id=DirectiveId("d")) == ("ok", True)
    real.wall = Instant(START + 100 * HOUR)
    assert done(real, system.send(statement(real.wall))) == ("ok", ("d", False)), "the first life is forgotten"
    set_back(real, START + HOUR)
    real.wall = Instant(START + 60 * HOUR)
    done(real, sweep)
    (row,) = real.rows(real.wall).values()
    assert row["state"] == "invalidated", "48 hours past the expiry of the second life are not over"


def test_accepting_a_clock_that_is_hardly_behind_changes_nothing() -> None:
    real, _ = opened()
    assert done(real, system.send(statement(START))) == ("ok", ("d", False))
    assert order(real, "revoke", admin.revoke, id=DirectiveId("d")) == ("ok", True)
    real.wall = Instant(START + 49 * HOUR + SECOND)
    assert done(real, system.send(statement(real.wall))) == ("ok", ("d", False)), "the first life is forgotten"
    set_back(real, real.wall - MINUTE)
    assert list(real.rows(real.wall)) == ["d"], "an id is listed once"


def test_two_successors_of_one_certificate_are_a_fork_while_it_stands() -> None:
    real, who = opened()
    set_back(real, START - 20 * DAY)
    first = Made("c2", digest("c2"), Instant(real.wall + DAY))
    assert done(real, system.renews(who, "k2", first)) == ("ok", b"c2")
    real.wall = Instant(real.wall + DAY + MINUTE)
    second = Made("c3", digest("c3"), Instant(real.wall + DAY))
    assert done(real, system.renews(who, "k3", second)) == ("no", Reason.CERTIFICATE_FORKED)


def test_what_is_listed_as_expired_is_not_invalidated_afterwards() -> None:
    real, _ = opened()
    assert done(real, system.send(statement(START))) == ("ok", ("d", False))
    real.wall = Instant(START + 600 * SECOND)
    assert real.rows(real.wall)["d"]["state"] == "expired"
    assert order(real, "agent_revoke", admin.revoke_agent, cn=Cn("a")) == ("ok", True)
    assert real.rows(real.wall)["d"]["state"] == "expired"
