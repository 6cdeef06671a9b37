"""What the operator, the agents and the broker itself do, each as one turn on both sides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.rules import admin, sweep
from broker.wire.names import Cn, DirectiveId, Instant
from tests.model import orders, system
from tests.model.reference import DAY, SECOND, Choices, Model, Row, no
from tests.model.stage import Stage
from tests.model.system import INSTANCE, Asked, Made, digest

IDS, SIGNERS = tuple(f"d{n}" for n in range(8)), ("s1", "s2")
CERTIFICATE = (90 * DAY, 90 * DAY, DAY)
# A fault of the rules that tests/model/test_faults.py shows; the machine goes around it until it is mended.


class Acts(Stage):
    """Whoever acts, and whatever they know: statements, envelopes, tickets and certificates that were ever made."""

    # The operator.

    def order(self, flaw: str, again: int, op: str) -> Row:
        """A signed order: new and good, or flawed, or one that was sent before."""
        if flaw == "replayed" and self.envelopes:
            return self.envelopes[again % len(self.envelopes)]
        self.serial += 1
        off = {"late": -121 * SECOND, "edge": -120 * SECOND, "early": 120 * SECOND}.get(flaw, 0)
        e = {"digest": f"e{self.serial}", "op": "other" if flaw == "op" else op, "issued": self.system.wall + off}
        self.envelopes.append(e | {"instance": "another" if flaw == "instance" else INSTANCE})
        return self.envelopes[-1]

    def ordered(self, op: str, e: Row, rule: Any, told: Callable[[Model, int, Row], Choices], **params: Any) -> None:
        def choices(now: int) -> Choices:
            why = orders.flaws(self.model, now, e, op, INSTANCE)
            return no(why) if why else told(self.model, now, e)

        self.turn(partial(rule, order=system.order(e, op), **params), choices)

    def invite(self, cn: str, expires_s: int, again: int | None, flaw: str, n: int) -> None:
        self.serial += 1
        used = again is not None and again % 3 == 0 and self.tickets
        ticket = self.tickets[again % len(self.tickets)] if used and again is not None else f"t{self.serial}"
        self.tickets += [] if used else [ticket]
        told = partial(orders.invite, cn=cn, ticket=ticket, expires_s=expires_s)
        params = {"cn": Cn(cn), "ticket_digest": digest(ticket), "expires_s": expires_s}
        self.ordered("agent_invite", self.order(flaw, n, "agent_invite"), admin.invite, told, **params)

    def revoke_agent(self, cn: str, flaw: str, n: int) -> None:
        told = partial(orders.revoke_agent, cn=cn)
        self.ordered("agent_revoke", self.order(flaw, n, "agent_revoke"), admin.revoke_agent, told, cn=Cn(cn))

    def pause_or_resume(self, cn: str, flaw: str, n: int, on: bool) -> None:
        op, real, told = ("pause", admin.pause, orders.pause) if on else ("resume", admin.resume, orders.resume)
        self.ordered(op, self.order(flaw, n, op), real, partial(told, cn=cn), cn=Cn(cn))

    def revoke(self, id: str, flaw: str, n: int) -> None:
        told = partial(orders.revoke, id=id)
        self.ordered("revoke", self.order(flaw, n, "revoke"), admin.revoke, told, id=DirectiveId(id))

    def read(self, flaw: str, n: int) -> None:
        self.ordered("list", self.order(flaw, n, "list"), admin.take, orders.take)

    def send(
        self, id: str, cn: str, off: int, opens: int, lasts: int, issued: int, signer: str, flaws: frozenset[str]
    ) -> None:
        self.serial += 1
        generation = max(1, self.model.agents.get(cn, {"generation": 1})["generation"] + off)
        wall = self.system.wall
        s = {"id": id, "cn": cn, "generation": generation, "issued": wall + issued, "opens": wall + opens,
             "expires": wall + lasts, "signer": signer, "flaws": flaws, "bound": "tool_undeclared" in flaws,
             "raw": f"statement-{self.serial}".encode()}  # fmt: skip
        self.statements.append(s)
        self.sent(s)

    def sent(self, s: Row) -> None:
        before = s["id"] in self.model.directives
        asked = self.turn(system.send(s), lambda now: self.model.send(now, s))
        self.reborn |= before and asked.decided is not None and asked.decided[0] == "ok"

    def send_well(self, n: int, opens: int, lasts: int) -> None:
        """One that should be taken, where there is an agent for it."""
        enrolled = [cn for cn, agent in self.model.agents.items() if agent["state"] == "enrolled"]
        new = [id for id in IDS if id not in self.model.directives] or IDS
        if enrolled:
            cn = enrolled[n % len(enrolled)]
            self.send(new[n % len(new)], cn, 0, opens, lasts * SECOND, 0, SIGNERS[n % 2], frozenset())

    def send_again(self, n: int) -> None:
        if self.statements:
            self.sent(self.statements[-1 - n % len(self.statements)])

    # The agents.

    def who(self, n: int) -> Row:
        """Somebody who was ever certified; the latest come first."""
        return self.identities[-1 - n % len(self.identities)]

    def owner(self, id: str) -> int | None:
        """The place in the line of `who` of the identity that this directive is for."""
        row = self.model.directives[id]
        mine = [(who["cn"], who["generation"]) == (row["cn"], row["generation"]) for who in reversed(self.identities)]
        return mine.index(True) if True in mine else None

    def consume_well(self, n: int, attempt: str) -> None:
        """Something that is open, by the identity that it is for."""
        rows = self.model.directives
        active = [id for id in reversed(rows) if rows[id]["state"] == "active" and self.owner(id) is not None]
        if active:
            id = active[n % len(active)]
            self.consume(self.owner(id) or 0, id, attempt, frozenset(SIGNERS))

    def consume_as_another_enrolment(self, n: int, attempt: str) -> None:
        """Something that is open, by another enrolment of the same name."""
        rows = self.model.directives
        active = [id for id in reversed(rows) if rows[id]["state"] == "active"]
        for id in active[n % len(active) :][:1] if active else ():
            cn, generation = rows[id]["cn"], rows[id]["generation"]
            for place, who in enumerate(reversed(self.identities)):
                if who["cn"] == cn and who["generation"] != generation:
                    self.consume(place, id, attempt, frozenset(SIGNERS))
                    self.check(place, id)
                    break

    def consume_again(self, n: int, other: str) -> None:
        """Something that was consumed, by the same identity and mostly with the same attempt."""
        held = [id for id, row in self.model.directives.items() if row["repeat"]]
        for id in held[n % len(held) :][:1] if held else ():
            key, attempt, _ = self.model.directives[id]["repeat"]
            place, who = self.owner(id), [who["key"] == key for who in reversed(self.identities)]
            place = who.index(True) if other == "key" else place
            if place is not None:
                self.consume(place, id, "another" if other == "attempt" else attempt, frozenset(SIGNERS))

    def look_and_check_well(self, n: int) -> None:
        """What a directive's own agent is told of it."""
        known = list(self.model.directives)
        for id in known[n % len(known) :][:1] if known else ():
            if (place := self.owner(id)) is not None:
                self.check(place, id)
                self.report(place, id, "done")
                self.look(place, 0)

    def consume(self, n: int, id: str, attempt: str, good: frozenset[str]) -> None:
        who = self.who(n)
        claim = (who["cn"], str(who["generation"]), who["key"], attempt)

        def released(raw: bytes) -> None:
            self.counts["handed out"] += 1
            assert self.handed.setdefault(raw, claim) == claim, "to one claimant"
            assert attempt or raw not in self.once, "and without an attempt key once"
            self.counts["repeats"] += raw in self.once
            self.once.add(raw)

        choices = lambda now: self.model.consume(now, who, id, attempt, good)  # noqa: E731
        self.turn(system.consumes(who, id, attempt, good), choices, released)

    def check(self, n: int, id: str) -> None:
        self.turn(system.checks(self.who(n), id), lambda now: self.model.check(now, self.who(n), id))

    def report(self, n: int, id: str, outcome: str) -> None:
        decide = system.reports(self.who(n), id, outcome)
        self.turn(decide, lambda now: self.model.report(now, self.who(n), id, outcome))

    def look(self, n: int, after: int) -> None:
        since = after and self.system.wall + after
        self.turn(system.looks(self.who(n), since), lambda now: self.model.inbox(now, self.who(n), since))

    def certificate(self) -> Made:
        self.serial += 1
        end = self.system.wall + CERTIFICATE[self.serial % len(CERTIFICATE)]
        return Made(f"cert-{self.serial}", digest(f"cert-{self.serial}"), Instant(end))

    def certified(self, made: Made, cn: str, key: str, asked: Asked) -> None:
        """Remember what this certificate makes of its holder, for when the answer is out."""
        if asked.decided == ("ok", made.pem.encode()):
            at = {"cn": cn, "generation": self.model.agents[cn]["generation"], "key": key}
            self.issued[made.pem.encode()] = at | {"cert": made.pem, "not_after": made.not_after_at}

    def enter(self, pem: bytes) -> None:
        who = self.issued[pem]
        assert who["generation"] >= self.highest[who["cn"]] or who in self.identities, "generations only grow"
        self.highest[who["cn"]] = max(who["generation"], self.highest[who["cn"]])
        if who not in self.identities:
            self.identities.append(who)

    def enrol(self, n: int, other: str | None, key: str) -> None:
        ticket = self.tickets[-1 - n % len(self.tickets)] if n < 9 else "never-seen"
        row, made = self.model.tickets.get(ticket), self.certificate()
        cn = other or (row["cn"] if row else "a")
        new, held = made.pem.encode(), self.held
        self.held = True  # its answer is heard after the certificate is known
        choices = lambda now: self.model.enrol(now, ticket, cn, key, new, made.not_after_at)  # noqa: E731
        asked = self.turn(system.enrols(ticket, cn, key, made), choices, self.enter)
        self.certified_at(made, cn, key, asked, held)

    def renew(self, n: int, key: str) -> None:
        who, made = self.who(n), self.certificate()
        held, self.held = self.held, True
        choices = lambda now: self.model.renew(now, who, key, made.pem.encode(), made.not_after_at)  # noqa: E731
        asked = self.turn(system.renews(who, key, made), choices, self.enter)
        self.certified_at(made, who["cn"], key, asked, held)

    def certified_at(self, made: Made, cn: str, key: str, asked: Asked, held: bool) -> None:
        self.certified(made, cn, key, asked)
        self.held = held
        if not held:
            self.land(None)

    # The broker by itself.

    def sweep(self) -> None:
        self.turn(sweep.sweep, lambda now: orders.sweep(self.model, now))

    def uphold(self, bad: str) -> None:
        self.turn(system.upholds(bad), lambda now: orders.uphold(self.model, now, bad))
