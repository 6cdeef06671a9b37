"""What the operator allows and what is done of it, as the documents tell it: runs, requests, acts, leases, calls.

A part of the reference model, and written like it: from docs/ and the promises, never from broker/rules.
"""

from __future__ import annotations

from typing import Any

from tests.model import terms
from tests.model.reference import SECOND, TOMBSTONE, Choices, Effect, Model, Row, no, ok

REQUEST, DENIED, UNREPORTED, FIRST_READ = 600 * SECOND, 600 * SECOND, 60 * SECOND, 60 * SECOND
PENDING, RUNNING = 8, 16
PLAIN = 600 * SECOND
MICRO = 10_000


class Permits(Model):
    """A model of the lifecycle that knows tool calls."""

    def __init__(self, *, cap: int, repeat_s: int, expiry_max_s: int) -> None:
        super().__init__(cap=cap, repeat_s=repeat_s, expiry_max_s=expiry_max_s)
        self.policies: dict[str, Row] = {}
        self.accepted: dict[str, int] = {}  # by tool, which of its definitions
        self.changed: dict[str, int | None] = {}  # what was seen in place of what was accepted
        self.runs: dict[str, Row] = {}
        self.run_of: dict[tuple[str, int], str] = {}
        self.requests: dict[str, Row] = {}
        self.acts: dict[str, Row] = {}
        self.leases: dict[str, Row] = {}
        self.lease_ids: dict[str, Row] = {}
        self.claims: dict[str, Row] = {}
        self.stopped = False

    # What a decision looks at.

    def layers(self, cn: str) -> list[Row]:
        found = [self.policies[scope] for scope in ("instance", f"agent/{cn}") if scope in self.policies]
        return found if "instance" in self.policies else []

    def run(self, who: Row) -> Row | None:
        """The run that an identity is in."""
        return self.runs.get(self.run_of.get((who["cn"], who["generation"]), ""))

    def exhausted(self, who: Row, now: int) -> set[str]:
        """Why its run gets no further call. A run that has not begun has used nothing."""
        run, layers = self.run(who), self.layers(who["cn"])
        if run and run["over"]:
            return {"run_stopped"}
        spent = self.spending(run, now) if run else dict.fromkeys(terms.BUDGETS, 0)
        limits = {name: terms.limit(layers, name) for name in terms.BUDGETS}
        why = {"budget_exceeded" for name, most in limits.items() if most is not None and spent[name] >= most}
        figures = any(limits[name] is not None for name in ("input_tokens", "output_tokens", "cost_cents"))
        if run and figures and now - max(run["reported"], run["began"]) > UNREPORTED:
            why.add("usage_unreported")
        return why

    def spending(self, run: Row, now: int) -> dict[str, int]:
        until = run["ended"] if run["over"] else now
        spent = {name: run[name] for name in ("input_tokens", "output_tokens")}
        return spent | {
            "tool_calls": run["calls"],
            "wall_time_secs": (until - run["began"]) // SECOND,
            "cost_cents": run["cost"] // MICRO,
        }

    def live_lease(self, lease: Row, c: Row, now: int, boot: float) -> bool:
        """Open by its own terms and by those of the policy of this moment, on both clocks. The read that asked for it
        can't find it empty."""
        most = terms.terms(self.layers(lease["cn"]), lease["account"])
        seconds, operations = (min(lease[name], most[name]) for name in ("seconds", "operations"))
        mine = lease["own"] in (None, (c["tool"], c["raw"]))
        return lease["used"] + (not mine) < operations and not self._late(lease, seconds, now, boot)

    def over(self, lease: Row, now: int, boot: float) -> bool:
        return lease["used"] >= lease["operations"] or self._late(lease, lease["seconds"], now, boot)

    @staticmethod
    def _late(lease: Row, seconds: int, now: int, boot: float) -> bool:
        if lease["first"] is None:
            return bool(now >= lease["by"] or boot - lease["boot"] >= (lease["by"] - lease["opened"]) / SECOND)
        at, boot_at = lease["first"]
        return bool(now >= at + seconds * SECOND or boot - boot_at >= seconds)

    # An agent's call. c: who, tool, args, raw (their canonical bytes), call_id, defined (None: the server is silent),
    # and the names that it draws: claim, request, new_run.

    def call(self, now: int, boot: float, c: Row, good: frozenset[str]) -> Choices:
        who = c["who"]
        if why := self.bars(who, now) | self.not_now(who):
            return no(why)
        if c["call_id"] and (seen := self._seen(c)):
            return self._again(seen, c, now)
        if why := self.exhausted(who, now):
            return no(why)
        if sum(row["cn"] == who["cn"] and not row["outcome"] for row in self.claims.values()) >= RUNNING:
            return no({"rate_limited"})
        if why := self._unresolved(c):
            gone = [] if "server_unavailable" in why else [id for id, _ in self._for_this(c)]
            return no(why, *(self._ends_act(id, "invalidated", now) for id in gone))
        judged = terms.judge(self.layers(who["cn"]), c["tool"], c["args"])
        bound = (judged.account, judged.resources, c["defined"])
        void = [id for id, act in self._for_this(c) if judged.refused or self._binding(act) != bound]
        effects = tuple(self._ends_act(id, "invalidated", now) for id in void)
        if judged.refused:
            return no(judged.refused, *effects)
        run = self.run_of.get((who["cn"], who["generation"]))
        begins = () if run else (lambda m: m.begin_run(c["new_run"], who["cn"], who["generation"], now),)
        run = run or c["new_run"]
        if judged.regime == "automatic":
            return self._claims(c, judged, "automatic", run, (*effects, *begins), now, boot)
        acts = {f"act/{id}": act for id, act in self._for_this(c) if id not in void and self._open(act, now)}
        consents = acts | (self._open_leases(c, judged.account, run, now, boot) if judged.regime == "lease" else {})
        usable = [name for name, one in consents.items() if one["signer"] in good]
        if usable:
            chosen = (self._claims(c, judged, one, run, (*effects, *begins), now, boot) for one in usable)
            return [choice for choices in chosen for choice in choices]
        if consents:
            return no({"signers_unavailable"}, *effects)
        return self._asks(c, judged, run, effects, begins, now)

    def not_now(self, who: Row) -> set[str]:
        why = set() if self.current(who) else {"generation_stale"}
        return why | ({"emergency_stop"} if self.stopped else set())

    def _seen(self, c: Row) -> Row | None:
        name = (c["who"]["cn"], c["who"]["generation"], c["call_id"])
        rows = self.claims.values()
        found = [
            r for r in rows if (r["cn"], r["generation"], r["call_id"]) == name and r["outcome"] != "not_dispatched"
        ]
        return found[-1] if found else None

    def _again(self, seen: Row, c: Row, now: int) -> Choices:
        if (seen["tool"], seen["raw"]) != (c["tool"], c["raw"]):
            return no({"call_id_conflict"})
        return ok(("repeated", seen["outcome"]))

    def _unresolved(self, c: Row) -> set[str]:
        if c["tool"] not in self.accepted:
            return {"unknown_tool"}
        if c["defined"] is None:
            return {"server_unavailable"}
        same = c["defined"] == self.accepted[c["tool"]] and c["tool"] not in self.changed
        return set() if same else {"tool_changed"}

    def _for_this(self, c: Row) -> list[tuple[str, Row]]:
        """Acts for just this identity, tool and arguments that wait."""
        bound = (c["who"]["cn"], c["who"]["generation"], c["tool"], c["raw"])
        acts = [(id, act) for id, act in self.acts.items() if act["state"] == "active"]
        return [one for one in acts if tuple(one[1][name] for name in ("cn", "generation", "tool", "raw")) == bound]

    @staticmethod
    def _binding(act: Row) -> tuple[Any, ...]:
        return act["account"], act["resources"], act["version"]

    @staticmethod
    def _open(act: Row, now: int) -> bool:
        return bool(act["opens"] <= now < act["expires"])

    def _open_leases(self, c: Row, account: str, run: str, now: int, boot: float) -> dict[str, Row]:
        whose = (c["who"]["cn"], c["who"]["generation"], account, run)
        mine = {id: row for id, row in self.leases.items() if self._whose(row) == whose}
        return {f"lease/{id}": row for id, row in mine.items() if self.live_lease(row, c, now, boot)}

    @staticmethod
    def _whose(lease: Row) -> tuple[Any, ...]:
        return lease["cn"], lease["generation"], lease["account"], lease["run"]

    def _claims(
        self, c: Row, judged: terms.Judged, consent: str, run: str, before: tuple[Effect, ...], now: int, boot: float
    ) -> Choices:
        row = {
            "cn": c["who"]["cn"], "generation": c["who"]["generation"], "tool": c["tool"], "raw": c["raw"],
            "call_id": c["call_id"], "consent": consent, "run": run, "outcome": "", "ended": None,
        }  # fmt: skip
        return ok(("claimed", consent, c["raw"]), *before, lambda m: m._claim(c["claim"], dict(row), now, boot))

    def _claim(self, claim: str, row: Row, now: int, boot: float) -> None:
        self.claims[claim] = row
        self.runs[row["run"]]["calls"] += 1
        kind, _, id = row["consent"].partition("/")
        if kind == "act":
            self.acts[id] |= {"state": "claimed", "claim": claim, "ended": now}
        if kind == "lease":
            self.leases[id]["used"] += 1
            if self.leases[id]["own"] == (row["tool"], row["raw"]):
                row["kept"], self.leases[id]["own"] = self.leases[id]["own"], None
            self.leases[id]["first"] = self.leases[id]["first"] or (now, boot)

    # Asking the operator.

    def _asks(
        self, c: Row, judged: terms.Judged, run: str, void: tuple[Effect, ...], begins: tuple[Effect, ...], now: int
    ) -> Choices:
        who, tool = c["who"], c["tool"]
        request = {
            "cn": who["cn"], "generation": who["generation"], "regime": judged.regime, "tool": tool, "raw": c["raw"],
            "args": c["args"], "account": judged.account, "resources": judged.resources, "version": c["defined"],
            "seconds": None,
        }  # fmt: skip
        bound = (who["cn"], who["generation"], tool, c["defined"])
        acts = [a for a in self.acts.values() if (a["cn"], a["generation"], a["tool"], a["version"]) == bound]
        others = [a for a in acts if a["state"] == "active" and a["raw"] != c["raw"] and judged.regime == "act"]
        said = {bool(others)} | {any(self._open(act, now) for act in others)}
        return self.ask(now, c["request"], request | {"run": run}, said, void, begins)

    def ask(
        self, now: int, id: str, wanted: Row, others: set[bool], void: tuple[Effect, ...], begins: tuple[Effect, ...]
    ) -> Choices:
        """One request for one thing; not again what was refused; so many at once. others: may it say that what was
        approved was for other arguments?"""
        mine = {q: row for q, row in self.requests.items() if self._theirs(row) == self._theirs(wanted)}
        pending = {q: row for q, row in mine.items() if row["state"] == "pending" and now < row["expires"]}
        same = [q for q, row in pending.items() if self._about(row) == self._about(wanted)]
        if same:
            return [choice for other in sorted(others) for choice in ok(("asked", same[0], other), *void)]
        refused = [row for row in mine.values() if row["state"] == "denied" and now < row["ended"] + DENIED]
        why = {"too_many_pending"} if len(pending) + len(refused) >= PENDING else set()
        if any(self._refused(row) == self._refused(wanted) for row in refused):
            why.add("request_denied")
        if why:
            return no(why, *void)
        row = wanted | {"state": "pending", "expires": now + REQUEST, "ended": None, "answer": None}
        opens = lambda m: m.requests.update({id: dict(row)})  # noqa: E731
        return [choice for other in sorted(others) for choice in ok(("asked", id, other), *void, *begins, opens)]

    @staticmethod
    def _theirs(row: Row) -> tuple[Any, ...]:
        return row["cn"], row["generation"]

    @staticmethod
    def _about(row: Row) -> tuple[Any, ...]:
        """Reads of an account share one request; an act's is for just this call."""
        names = ("account",) if row["regime"] == "lease" else ("tool", "raw", "account", "resources", "version")
        return (row["regime"], *(row[name] for name in names))

    @staticmethod
    def _refused(row: Row) -> tuple[Any, ...]:
        return (row["regime"], row["account"]) if row["regime"] == "lease" else ("act", row["tool"], row["raw"])

    # The ends.

    def end_call(self, now: int, claim: str, outcome: str) -> Choices:
        """Once: a second end is told the first."""
        if known := self.claims[claim]["outcome"]:
            forgotten = ok(outcome) if self.forgettable(self.claims[claim], now) and outcome != known else []
            return ok(known) + forgotten
        return ok(outcome, lambda m: m._end_claim(claim, outcome, now))

    def _end_claim(self, claim: str, outcome: str, now: int) -> None:
        row = self.claims[claim]
        row |= {"outcome": outcome, "ended": now}
        if outcome != "not_dispatched":
            return
        self.runs[row["run"]]["calls"] -= 1
        kind, _, id = row["consent"].partition("/")
        if kind == "act" and id in self.acts:
            void = self.acts[id]["void"]
            self.acts[id] |= {"state": void or "active", "claim": None, "ended": now if void else None}
        if kind == "lease" and id in self.leases:
            self.leases[id]["used"] -= 1
            self.leases[id]["own"] = row.get("kept") or self.leases[id]["own"]

    def forgettable(self, row: Row, now: int) -> bool:
        """Nobody can ask for it any more: two days after its end, or soon where no name and no act leads to it."""
        led_to = row["call_id"] or row["consent"].startswith("act/") or row["outcome"] == "outcome_unknown"
        return row["ended"] is not None and now - row["ended"] >= (TOMBSTONE if led_to else PLAIN)

    def _ends_act(self, id: str, state: str, now: int) -> Effect:
        return lambda m: m._end_act(m.acts[id], state, now)

    def alive(self, act: Row) -> bool:
        """It waits for its call; or its call runs, and perhaps is never sent."""
        running = act["state"] == "claimed" and not self.claims.get(act["claim"], {"outcome": "over"})["outcome"]
        return bool(act["state"] == "active" or (running and not act["void"]))

    def _end_act(self, act: Row, state: str, now: int) -> None:
        """At once; or, while its call runs, as soon as that turns out not to have been sent."""
        act |= {"void": state} if act["state"] == "claimed" else {"state": state, "ended": now}

    def _ends_request(self, id: str, state: str, now: int) -> Effect:
        return lambda m: m.requests[id].update(state=state, ended=now)

    def settled(self, now: int) -> Choices:
        """A start: what was begun and not ended is unknown for good, and leases are over."""
        running = [id for id, row in self.claims.items() if not row["outcome"]]
        ends = [(lambda m, id=id: m._end_claim(id, "outcome_unknown", now)) for id in running]
        return ok(len(running), *ends, *self.closings(self.leases), lambda m: None)

    def closings(self, ids: Any) -> list[Effect]:
        return [lambda m, id=id: m.leases.pop(id) for id in ids]

    def lapse(self, now: int, boot: float) -> Choices:
        """What time closes."""
        requests = [id for id, row in self.requests.items() if row["state"] == "pending" and now >= row["expires"]]
        acts = [id for id, row in self.acts.items() if row["state"] == "active" and now >= row["expires"]]
        return ok(
            tuple(self.requests[id]["cn"] for id in requests),
            *(self._ends_request(id, "expired", now) for id in requests),
            *(self._ends_act(id, "expired", now) for id in acts),
            *self.closings([id for id, row in self.leases.items() if self.over(row, now, boot)]),
        )

    def cancel(self, concerns: Any, now: int) -> None:
        """What these rest on is over: what waits is void, and so is what an unsent call would give back."""
        for row in self.requests.values():
            if concerns(row) and row["state"] == "pending":
                row |= {"state": "invalidated", "ended": now}
        for row in self.acts.values():
            if concerns(row) and self.alive(row):
                self._end_act(row, "invalidated", now)

    def see(self, tool: str, version: int | None, now: int) -> None:
        """A tool is not what was accepted."""
        self.changed[tool] = version
        self.cancel(lambda row: row["tool"] == tool, now)

    def begin_run(self, id: str, cn: str, generation: int, now: int) -> None:
        figures = dict.fromkeys(("calls", "input_tokens", "output_tokens", "cost", "reported"), 0)
        self.runs[id] = figures | {"cn": cn, "generation": generation, "began": now, "over": False, "ended": None}
        self.run_of[cn, generation] = id

    def end_run(self, id: str, now: int) -> None:
        self.runs[id] |= {"over": True, "ended": now}
        self.leases = {lease: row for lease, row in self.leases.items() if row["run"] != id}

    def end_of(self, cn: str, now: int) -> None:
        """An enrolment is over, and all of its past with it."""
        self.cancel(lambda row: row["cn"] == cn, now)
        for id in [id for id, row in self.runs.items() if row["cn"] == cn and not row["over"]]:
            self.end_run(id, now)
        self.run_of = {who: run for who, run in self.run_of.items() if who[0] != cn}

    # What the rest of the lifecycle does to it.

    def _enrol(self, ticket: str, key: str, pem: bytes, not_after: int, now: int) -> None:
        super()._enrol(ticket, key, pem, not_after, now)
        self.end_of(self.tickets[ticket]["cn"], now)

    def shut(self, cn: str, now: int) -> None:
        super().shut(cn, now)
        self.end_of(cn, now)

    def freeze(self, cn: str, now: int) -> None:
        super().freeze(cn, now)
        self.end_of(cn, now)

    def set_back(self, at: int) -> None:
        super().set_back(at)
        self.cancel(lambda row: True, at)
        self.leases.clear()
        for id in [id for id, row in self.runs.items() if not row["over"]]:
            self.end_run(id, at)

    # Held calls: directives of kind tool_call.

    def flaws(self, now: int, s: Row) -> set[str]:
        why = super().flaws(now, s)
        if s["id"] in self.acts or s["id"] in self.lease_ids:
            why.add("id_seen")
        if s.get("call"):
            tool, args = s["call"]
            if tool in self.changed:
                why.add("tool_changed")
            elif tool in self.accepted:
                why |= terms.judge(self.layers(s["cn"]), tool, args).refused
            else:
                why.add("tool_undeclared")
        return why

    def closes(self, cn: str) -> tuple[Effect, ...]:
        """An agent that is shut out reads no more, and that is told of each lease."""
        return tuple(self.closings([id for id, row in self.leases.items() if row["cn"] == cn]))

    def freezes(self, s: Row) -> tuple[Effect, ...]:
        """What a tool_call is bound to is known from its admission on."""
        tool, args = s["call"] if s.get("call") else ("", {})
        if tool not in self.accepted:
            return ()
        judged, version = terms.judge(self.layers(s["cn"]), tool, args), self.accepted[tool]
        held = {"tool": tool, "raw": s["args"], "account": judged.account, "resources": judged.resources}
        return (lambda m: m.directives[s["id"]].update(frozen=held | {"version": version}),)

    def consume(self, now: int, who: Row, id: str, attempt: str, good: frozenset[str]) -> Choices:
        found, row = super().consume(now, who, id, attempt, good), self.known(id, now)
        if self.stopped and not self.bars(who, now):
            return no({"emergency_stop"} | {choice.outcome[1] for choice in found if choice.outcome[0] == "no"})
        if found[0].outcome[0] == "no" or row is None or row["state"] != "active" or "frozen" not in row:
            return found
        act = {name: row[name] for name in ("cn", "generation", "opens", "expires", "signer")} | row["frozen"]
        (choice,) = found
        return ok(choice.outcome[1], *choice.effects, lambda m: m.grant(id, act | {"request": None}, now))

    def grant(self, id: str, act: Row, now: int) -> None:
        self.acts[id] = act | {"state": "active", "claim": None, "ended": None, "void": None}
        if act["request"]:
            self.requests[act["request"]] |= {"state": "approved", "ended": now, "answer": id}
