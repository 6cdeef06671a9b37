"""What agents and operators do about tool calls, each as one turn on both sides."""

from __future__ import annotations

from functools import partial
from typing import Any

from broker.clocks import clock
from broker.gateway import Gateway, NoServers
from broker.rules.authority import closing, consent, orders
from broker.wire.names import Cn
from broker.wire.records import BrokerStarted
from tests.model import gate, permit_orders, system, terms
from tests.model.acts import SIGNERS
from tests.model.ends import Ends
from tests.model.permits import Permits
from tests.model.reference import SECOND, Choices, Row
from tests.model.system import CAP, EXPIRY_MAX_S, REPEAT_S, Asked, Decide
from tests.model.witness import Witness

GOOD = frozenset(SIGNERS)
STARTED = BrokerStarted("0", 0)


class Calls(Ends):
    """Whoever calls, answers and ends, and whatever was ever called."""

    model: Permits

    def __init__(self) -> None:
        super().__init__()
        self.boot = 1000.0
        self.begun = True
        self.witness = Witness(self.counts)
        self.calls: list[Row] = []
        self.waiting: list[str] = []
        self.running: list[str] = []  # claims that this life of the broker executes
        self.gateway = self._gateway()

    @staticmethod
    def new_model() -> Permits:
        return Permits(cap=CAP, repeat_s=REPEAT_S, expiry_max_s=EXPIRY_MAX_S)

    def _gateway(self) -> Gateway:
        """Whose measure of a lease's time is asked for, and nothing else."""
        unused: Any = None
        return Gateway(
            turn=self.system.turn, read=unused, started=STARTED, servers=NoServers(), names=(), clock=clock,
            boottime=lambda: self.boot, draw=unused, standing=unused, wakes=unused, spawn=unused,
        )  # fmt: skip

    def spans(self) -> tuple[dict[str, float], dict[str, float]]:
        """How long each lease is open, and was waited for."""
        return self.gateway.elapsed_s(), self.gateway.waited_s()

    # A life of the broker.

    def start(self) -> None:
        super().start()
        self.begun = False
        self.running.clear()
        self.gateway = self._gateway()

    def turn(self, decide: Decide, *rest: Any) -> Asked:
        """Before anything else, what an earlier life left open is settled, and the start is written."""
        if not self.begun and not self.behind():
            self.begun = True
            settles = partial(closing.settle, started=STARTED)
            super().turn(settles, lambda now: self.model.settled(now))
        return super().turn(decide, *rest)

    def number(self, word: str) -> str:
        self.serial += 1
        return f"{word}-{self.serial}"

    # Agents.

    def call(self, who: Row, tool: str, args: Row, call_id: str, defined: int | None, good: frozenset[str]) -> Asked:
        c = {
            "who": who, "tool": tool, "args": args, "raw": gate.raw_of(args), "call_id": call_id,
            "defined": defined, "claim": self.number("c"), "request": self.number("q"), "new_run": self.number("r"),
        }  # fmt: skip
        self.calls.append(c)
        spans, boot = self.spans(), self.boot
        sent = {
            "who": who, "tool": tool, "raw": c["raw"], "boot": boot, "mutates": terms.WORLD[tool]["class"] != "read",
            "account": str(args.get("account", "")) if terms.WORLD[tool]["account"] else "",
        }  # fmt: skip

        def released(value: Any) -> None:
            if value[0] == "claimed":
                self.running.append(c["claim"])
                self.counts["executed"] += 1
                self.witness.send(c["claim"], sent | {"consent": value[1]})

        def choices(now: int) -> Choices:
            run = self.model.run_of.get((who["cn"], who["generation"]), c["new_run"])
            most = terms.limit(self.model.layers(who["cn"]), "tool_calls")
            sent.update(at=now, run=run, most=most)
            return self.model.call(now, boot, c, good)

        asked = self.turn(gate.call(c, good, spans), choices, released)
        self._remember(asked)
        return asked

    def _remember(self, asked: Asked) -> None:
        kind, value = asked.decided or ("no", "clock_behind")
        word = value if kind == "no" else value[0]
        if word == "claimed":
            word = f"claimed by {value[1].partition('/')[0]}"
        self.counts[f"answer {word}"] += 1
        if word == "asked" and value[1] not in self.waiting:
            self.waiting.append(value[1])

    def call_again(self, n: int, call_id: str, good: frozenset[str] = GOOD) -> None:
        """The same call as before, by the agent that it is now."""
        if self.calls:
            c = self.calls[-1 - n % len(self.calls)]
            who = self.now_of(c["who"]["cn"], n % 7)
            version = self.model.accepted.get(c["tool"], 0)
            self.call(who, c["tool"], c["args"], call_id or c["call_id"], version, good)

    def now_of(self, cn: str, n: int) -> Row:
        """The latest certificate of a name, and now and then an earlier one."""
        mine = [who for who in reversed(self.identities) if who["cn"] == cn]
        return mine[1 if n == 1 and len(mine) > 1 else 0]

    def ask_lease(self, who: Row, account: str, seconds: int | None) -> None:
        request, run = self.number("q"), self.number("r")
        choices = lambda now: permit_orders.ask_lease(self.model, now, who, account, seconds, request, run)  # noqa: E731
        self._remember(self.turn(gate.ask_lease(who, account, seconds, request, run), choices))

    def release(self, cn: str, account: str) -> None:
        rule = partial(orders.release_lease, cn=Cn(cn), account=account)
        self.turn(rule, lambda now: permit_orders.release(self.model, cn, account))

    # Servers.

    def end(self, n: int, outcome: str) -> None:
        """What came of a call that was sent, or that was ended before."""
        known = [claim for claim in self.running if claim in self.model.claims]
        if not known:
            return
        claim, answer = known[n % len(known)], self.number("answer").encode()
        rule = partial(closing.end, claim=claim, outcome=outcome, answer=answer)
        asked = self.turn(rule, lambda now: self.model.end_call(now, claim, outcome))
        if asked.decided == ("ok", "not_dispatched"):
            self.witness.not_sent(claim)

    def see(self, seen: dict[str, int]) -> None:
        """What a server defines was looked at."""
        self.turn(gate.see_tools(seen), lambda now: permit_orders.see_tools(self.model, now, seen))

    # The operator.

    def statement(self, cn: str, off: int, opens: int, lasts: int, signer: str, id: str = "") -> Row:
        generation = max(1, self.model.agents.get(cn, {"generation": 1})["generation"] + off)
        wall = self.system.wall
        return {"id": id or self.number("s"), "cn": cn, "generation": generation, "issued": wall,
                "opens": wall + opens * SECOND, "expires": wall + lasts * SECOND, "signer": signer,
                "flaws": frozenset[str]()}  # fmt: skip

    def answer(self, n: int, flaw: str, opens: int, lasts: int, signer: str) -> None:
        """A signature for what an agent asked for; flaw: the one field that is another."""
        if not self.waiting:
            return
        id = self.waiting[-1 - n % len(self.waiting)]
        asked = self.model.requests.get(id)
        if asked is None:
            return
        s = self.statement(asked["cn"], 0, opens, lasts, signer)
        s["generation"] = asked["generation"]
        s |= {name: asked[name] for name in ("tool", "raw", "account", "resources", "version")}
        s |= {"request": id, "args": gate.strict_json.parse(s["raw"] or b"{}", "args")}
        match flaw:
            case "args":
                s |= {"args": {"path": "forged"}, "raw": gate.raw_of({"path": "forged"})}
            case "account":
                s["account"] = "bank" if s["account"] == "mail" else "mail"
            case "resources":
                s["resources"] = ("id:forged",)
            case "version":
                s["version"] = 2
            case "generation":
                s["generation"] += 1
            case "tool":
                s["tool"] = "shred"
            case "again":
                s["id"] = next(iter([*self.model.acts, *self.model.lease_ids, s["id"]]))
        if asked["regime"] == "act":
            self.granted(s, self.turn(gate.approve(s), lambda now: permit_orders.approve(self.model, now, s)))
        else:
            self.open_lease(s, 90, 20)

    def open_lease(self, s: Row, seconds: int, operations: int) -> None:
        s |= {"seconds": seconds, "operations": operations}
        s.setdefault("request", "")
        boot = self.boot
        self.granted(s, self.turn(gate.open_lease(s), lambda now: permit_orders.open_lease(self.model, now, boot, s)))

    def granted(self, s: Row, asked: Asked) -> None:
        if asked.decided and asked.decided[0] == "ok":
            self.witness.signed[s["id"]] = dict(s)
            self.counts["granted"] += 1
            self.spans()  # as each second

    def send_call(self, s: Row, tool: str, args: Row) -> None:
        """A directive of kind tool_call, that is held for the call once it is consumed."""
        s |= {"call": (tool, args), "args": gate.raw_of(args), "bound": True}
        s["raw"] = gate.signed(s, gate.held_call(s))[0].raw
        asked = self.turn(gate.send(s), lambda now: self.model.send(now, s))
        if asked.decided and asked.decided[0] == "ok":
            account = str(args.get("account", "")) if terms.WORLD[tool]["account"] else ""
            self.witness.signed[s["id"]] = s | {"tool": tool, "raw": s["args"], "account": account}

    def op(self, op: str, rule: Any, told: Any, flaw: str, n: int, **params: Any) -> None:
        """A signed order; told: the model's, with the same params."""
        self.ordered(op, self.order(flaw, n, op), gate.spoken(rule), told, **params)

    def deny(self, n: int, flaw: str) -> None:
        id = self.waiting[-1 - n % len(self.waiting)] if self.waiting else "none"
        self.op("request_deny", consent.deny, partial(permit_orders.deny, id=id), flaw, n, id=id, note="")

    def apply_policy(self, scope: str, row: Row, flaw: str, n: int) -> None:
        document = gate.policy_of(row)
        told = partial(permit_orders.apply_policy, scope=scope, policy=row, version=document.version)
        self.op("policy_apply", orders.apply_policy, told, flaw, n, scope=scope, raw=document.raw)

    def accept(self, tools: dict[str, int], flaw: str, n: int) -> None:
        told = partial(permit_orders.accept_tools, tools=tools)
        self.op("tools_accept", orders.accept_tools, told, flaw, n, raw=gate.definitions(tools))

    def new_run(self, cn: str, flaw: str, n: int) -> None:
        run = self.number("r")
        told = partial(permit_orders.new_run, cn=cn, run=run)
        self.op("run_new", orders.new_run, told, flaw, n, cn=Cn(cn), run=run)

    def stop_run(self, run: str, flaw: str, n: int) -> None:
        self.op("run_stop", orders.stop_run, partial(permit_orders.stop_run, run=run), flaw, n, run=run)

    def close_lease(self, id: str, flaw: str, n: int) -> None:
        self.op("lease_close", orders.shut_lease, partial(permit_orders.close_lease, id=id), flaw, n, id=id)

    def revoke_act(self, id: str, flaw: str, n: int) -> None:
        self.op("act_revoke", orders.revoke_act, partial(permit_orders.revoke_act, id=id), flaw, n, id=id)

    def stop_all(self) -> None:
        self.turn(partial(orders.stop_all, request=gate.OPERATOR), lambda now: permit_orders.stop_all(self.model))

    def lift_stop(self, flaw: str, n: int) -> None:
        self.op("stop_lift", orders.lift_stop, permit_orders.lift_stop, flaw, n)

    def usage(self, run: str, tokens: int, output: int, cost: int) -> None:
        rule = partial(
            orders.report_usage, request=gate.OPERATOR, run=run,
            input_tokens=tokens, output_tokens=output, cost_micro=cost,
        )  # fmt: skip
        self.turn(rule, lambda now: permit_orders.report_usage(self.model, now, run, tokens, output, cost))

    # The broker by itself.

    def lapse(self) -> None:
        (elapsed, waited), boot = self.spans(), self.boot
        self.turn(partial(closing.lapse, elapsed_s=elapsed, waited_s=waited), lambda now: self.model.lapse(now, boot))

    def uphold(self, bad: str) -> None:
        self.turn(system.upholds(bad), lambda now: permit_orders.uphold(self.model, now, bad))
