"""The lifecycle as the documents tell it, in plain dicts: what may be answered, and what changes when it is.

Written from docs/ and never from broker/rules. An operation gives the choices that the documents leave open: mostly
one, and one for each *true* reason where several hold, since no document ranks them. A choice is its outcome and its
effects, one for each record that it writes, in their order: what a crash leaves of them is a prefix.

Nothing is deleted here: what is forgotten is a question of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

SECOND = 1_000_000
HOUR = 3600 * SECOND
LEEWAY = FRESH = 120 * SECOND
MINUTE = LOST_REPLY = 60 * SECOND
DAY = 24 * HOUR
TOMBSTONE = 48 * HOUR
LATEST = TOMBSTONE + 2 * HOUR

Row = dict[str, Any]
Outcome = tuple[str, Any]
"""("ok", value) or ("no", reason)."""
Effect = Callable[["Model"], None]


class Choice(NamedTuple):
    """One thing that may be answered, and what it changes, record by record."""

    outcome: Outcome
    effects: tuple[Effect, ...] = ()


Choices = list[Choice]


def ok(value: Any = None, *effects: Effect) -> Choices:
    """Nothing else may be answered."""
    return [Choice(("ok", value), effects)]


def no(reasons: Iterable[str], *effects: Effect) -> Choices:
    """Any of these true reasons, and nothing else."""
    return [Choice(("no", reason), effects) for reason in sorted(reasons)]


def the_time(wall: int, newest: int) -> int | None:
    """Time never runs backwards: the clock, or the journal's newest time; None when that is too far ahead."""
    return None if newest - wall > LEEWAY else max(wall, newest)


class Model:
    """What an operator and the agents may rely on."""

    def __init__(self, *, cap: int, repeat_s: int, expiry_max_s: int) -> None:
        self.cap, self.repeat, self.expiry_max = cap, repeat_s * SECOND, expiry_max_s * SECOND
        self.agents: dict[str, Row] = {}
        self.tickets: dict[str, Row] = {}
        self.directives: dict[str, Row] = {}
        self.paused: set[str] = set()  # names
        self.used: set[str] = set()  # envelopes
        self.gone: set[str] = set()  # directives that were seen to be forgotten

    # Directives: active, then one end, and the id is not free before 48 hours past expiry.

    def known(self, id: str, now: int) -> Row | None:
        """What is remembered of an id."""
        row = self.directives.get(id)
        return None if row is None or (id in self.gone and self.may_forget(id, now)) else row

    def may_forget(self, id: str, now: int) -> bool:
        """Ended, and 48 hours past its expiry."""
        row = self.directives[id]
        return row["state"] != "active" and bool(now >= row["expires"] + TOMBSTONE)

    def must_forget(self, id: str, now: int) -> bool:
        """Memory is bounded: some time later it is forgotten, once a turn comes."""
        row = self.directives[id]
        return self.may_forget(id, now) and bool(now >= max(row["expires"] + LATEST, row["ended"] + 2 * MINUTE))

    def state(self, row: Row, now: int) -> str:
        """A window that has closed is expired, whether or not that was written down."""
        return "expired" if row["state"] == "active" and now >= row["expires"] else str(row["state"])

    def live(self, cn: str) -> list[str]:
        """Ids that are not ended, or whose end by time was not written down."""
        return [id for id, row in self.directives.items() if row["cn"] == cn and row["state"] == "active"]

    def send(self, now: int, s: Row) -> Choices:
        """s: id, cn, generation, issued, opens, expires, signer, raw, and the flaws that it was given."""
        why = self.flaws(now, s)
        kept = {key: s[key] for key in ("id", "cn", "generation", "opens", "expires", "signer", "raw")}
        good = ok((s["id"], s["opens"] > now), lambda m: m._admit(kept, now), *self.freezes(s))
        if why:
            return no(why)
        return good + self.crowded(s)

    def crowded(self, s: Row) -> Choices:
        """What closed and was not yet written down still counts, for a second."""
        return no({"too_many_active"}) if len(self.live(s["cn"])) >= self.cap else []

    def flaws(self, now: int, s: Row) -> set[str]:
        """Every true reason against a statement."""
        agent, why = self.agents.get(s["cn"]), set(s["flaws"])
        if s["opens"] >= s["expires"]:
            why.add("window_empty")
        if now >= s["expires"]:
            why.add("expired")
        if s["expires"] - now > self.expiry_max:
            why.add("expiry_beyond_cap")
        if s["issued"] > now + LEEWAY:
            why.add("issued_in_future")
        if agent is None:
            why.add("unknown_agent")
        elif agent["state"] in ("revoked", "frozen"):
            why.add(f"agent_{agent['state']}")
        if agent is not None and agent["generation"] != s["generation"]:
            why.add("generation_stale")
        if self.known(s["id"], now):
            why.add("id_seen")
        open_ones = sum(self.state(self.directives[id], now) == "active" for id in self.live(s["cn"]))
        if open_ones >= self.cap:
            why.add("too_many_active")
        return why

    def _admit(self, kept: Row, now: int) -> None:
        self.directives.pop(kept["id"], None)
        self.gone.discard(kept["id"])
        state = {"state": "active", "admitted": now, "ended": None, "repeat": None, "report": None}
        self.directives[kept["id"]] = kept | state

    def end(self, id: str, state: str, now: int) -> None:
        """The one way out of active; a window that had closed, and that was not written down yet, has expired."""
        row = self.directives[id]
        assert row["state"] == "active"
        row |= {"state": "expired" if now >= row["expires"] else state, "ended": now}

    def end_all(self, cn: str, now: int) -> None:
        """An agent's past is over: what was active is invalidated, no answer is given again."""
        for id in self.live(cn):
            self.end(id, "invalidated", now)
        for row in self.directives.values():
            if row["cn"] == cn:
                row["repeat"] = None

    # What an agent may do. who: cn, generation, key, cert, not_after.

    def bars(self, who: Row, now: int) -> set[str]:
        """Why an identity gets a 403 on every route."""
        return self.shut_out(who, now) | ({"agent_paused"} if who["cn"] in self.paused else set())

    def shut_out(self, who: Row, now: int) -> set[str]:
        """Why it gets a 403 where it renews: a pause is no reason there."""
        agent, why = self.agents.get(who["cn"]), set()
        if now >= who["not_after"]:
            why.add("certificate_expired")
        if agent and agent["state"] == "revoked":
            why.add("agent_revoked")
        if agent and agent["state"] == "frozen" and agent["generation"] == who["generation"]:
            why.add("agent_frozen")
        return why

    def current(self, who: Row) -> bool:
        agent = self.agents.get(who["cn"])
        return agent is not None and agent["generation"] == who["generation"]

    def why_not(self, who: Row, id: str, now: int) -> set[str]:
        """Every true reason against handing this out; of what is another's, none but that it is."""
        row = self.known(id, now)
        if row is None:
            return {"unknown_id"} if id.isalnum() else {"unknown_id", "malformed_id"}
        why = set() if row["cn"] == who["cn"] else {"other_target"}
        if row["generation"] != who["generation"] or not self.current(who):
            why.add("generation_stale")
        if why:
            return why
        if row["state"] == "active":
            return {"expired"} if now >= row["expires"] else {"not_yet_valid"} if now < row["opens"] else set()
        return {"already_consumed" if state == "consumed" else state for state in self.ends(row)}

    def ends(self, row: Row) -> set[str]:
        return {row["state"]}

    def consume(self, now: int, who: Row, id: str, attempt: str, good: frozenset[str]) -> Choices:
        """Once; and again for a minute to the same key with the same attempt, while nothing has ended that right."""
        if bars := self.bars(who, now):
            return no(bars)
        why, row = self.why_not(who, id, now), self.known(id, now)
        if row and why == {"already_consumed"} and self.repeats(row, who, attempt, now) and row["signer"] in good:
            return ok(row["raw"], lambda m: None)
        if row and not why and row["signer"] not in good:
            why = {"signers_unavailable"}
        if why or row is None:
            return no(why)
        return ok(row["raw"], lambda m: m._consume(id, who["key"], attempt, now))

    def repeats(self, row: Row, who: Row, attempt: str, now: int) -> bool:
        held = row["repeat"]
        return bool(held and attempt and (who["key"], attempt) == held[:2] and now < held[2])

    def _consume(self, id: str, key: str, attempt: str, now: int) -> None:
        self.end(id, "consumed", now)
        row = self.directives[id]
        until = min(row["expires"], now + self.repeat)
        row["repeat"] = (key, attempt, until) if attempt and until > now else None

    def check(self, now: int, who: Row, id: str) -> Choices:
        """The state, to the live target alone."""
        if bars := self.bars(who, now):
            return no(bars)
        row, why = self.known(id, now), self.why_not(who, id, now)
        if row is None or why & {"other_target", "generation_stale", "not_yet_valid"}:
            return no(why)
        return [choice for state in sorted(self.ends(row | {"state": self.state(row, now)})) for choice in ok(state)]

    def report(self, now: int, who: Row, id: str, outcome: str) -> Choices:
        """What came of a consumed directive, said once."""
        if bars := self.bars(who, now):
            return no(bars)
        row, why = self.known(id, now), self.why_not(who, id, now)
        if row is None or why != {"already_consumed"}:
            return no(why or {"not_consumed"})
        if row["report"]:
            return ok(outcome) if row["report"] == outcome else no({"already_reported"})
        return ok(outcome, lambda m: m.directives[id].update(report=outcome))

    def inbox(self, now: int, who: Row, after: int) -> Choices:
        """The open ones that came to wait later than `after`."""
        if bars := self.bars(who, now):
            return no(bars)
        if not self.current(who):
            return no({"generation_stale"})
        rows = [(id, self.directives[id]) for id in self.live(who["cn"])]
        waiting = [(id, max(r["admitted"], r["opens"])) for id, r in rows if r["opens"] <= now < r["expires"]]
        return ok(tuple((id, at) for id, at in waiting if at > after))

    # Who is who: tickets, generations, renewals.

    def enrol(self, now: int, ticket: str, cn: str, key: str, pem: bytes, not_after: int) -> Choices:
        """The next generation, and the end of the last one's, for a ticket that is good once."""
        row = self.tickets.get(ticket)
        if row is None:
            return no({"ticket_unknown"})
        why = set() if row["cn"] == cn else {"ticket_other_name"}
        if row["answer"]:
            held_key, held_pem, until = row["answer"]
            if not why and key == held_key and now < until:
                return ok(held_pem)
            # Spent long enough, or void by a later clock, it may be forgotten: it is the same 403.
            return no(why | {"ticket_spent"} | ({"ticket_unknown"} if now >= max(until, row["expires"]) else set()))
        if now >= row["expires"]:
            return no(why | {"ticket_expired", "ticket_unknown"})
        return no(why) if why else ok(pem, *self.closes(cn), lambda m: m._enrol(ticket, key, pem, not_after, now))

    def _enrol(self, ticket: str, key: str, pem: bytes, not_after: int, now: int) -> None:
        row = self.tickets[ticket]
        before = self.agents.get(row["cn"], {"generation": 0})["generation"]
        self.end_all(row["cn"], now)
        self._agent(row["cn"], before + 1, not_after)
        row["answer"] = (key, pem, now + LOST_REPLY)

    def _agent(self, cn: str, generation: int, not_after: int) -> None:
        first = {"state": "enrolled", "not_after": not_after, "renewals": 0, "successors": {}}
        self.agents[cn] = {"generation": generation} | first

    def renew(self, now: int, who: Row, key: str, pem: bytes, not_after: int) -> Choices:
        """A successor of the same generation; two successors of one certificate are a copied identity."""
        if bars := self.shut_out(who, now):
            return no(bars)
        agent = self.agents.get(who["cn"])
        if who["generation"] != (agent["generation"] if agent else 1):
            return no({"generation_stale"})
        if agent and who["cert"] in agent["successors"]:
            held_key, held_pem = agent["successors"][who["cert"]]
            if key == held_key:
                return ok(held_pem)
            return no({"certificate_forked"}, *self.closes(who["cn"]), lambda m: m.freeze(who["cn"], now))
        return ok(pem, lambda m: m._renew(who, key, pem, not_after))

    def _renew(self, who: Row, key: str, pem: bytes, not_after: int) -> None:
        if who["cn"] not in self.agents:
            self._agent(who["cn"], 1, not_after)
        agent = self.agents[who["cn"]]
        agent["successors"][who["cert"]] = (key, pem)
        agent |= {"not_after": not_after, "renewals": agent["renewals"] + 1}

    def invite(self, cn: str, ticket: str, expires: int) -> None:
        self.void(cn)
        self.tickets[ticket] = {"cn": cn, "expires": expires, "answer": None}

    def void(self, cn: str) -> None:
        self.tickets = {t: row for t, row in self.tickets.items() if row["cn"] != cn or row["answer"]}

    def shut(self, cn: str, now: int) -> None:
        """The end of an agent: of its tickets and of what is open."""
        self.void(cn)
        self.end_all(cn, now)
        if cn in self.agents:
            self.agents[cn]["state"] = "revoked"

    def closes(self, cn: str) -> tuple[Effect, ...]:
        """What is written first when an agent is shut out: of a model that knows nothing else, nothing."""
        return ()

    def freezes(self, s: Row) -> tuple[Effect, ...]:
        """What is written of a statement besides it."""
        return ()

    def freeze(self, cn: str, now: int) -> None:
        """A copied identity."""
        self.agents[cn]["state"] = "frozen"

    def set_back(self, at: int) -> None:
        """The clock is set back: what was open ends, what was used in the time that is taken back stays used."""
        for cn in {row["cn"] for row in self.directives.values()}:
            self.end_all(cn, at)
        self.tickets.clear()
        self.gone.clear()
