"""What the operator's orders and answers, and the broker by itself, may do to what is allowed; from docs/ too."""

from __future__ import annotations

from tests.model import orders, terms
from tests.model.permits import FIRST_READ, Permits
from tests.model.reference import Choices, Effect, Row, no, ok

BOUND = ("cn", "generation", "tool", "raw", "account", "resources", "version")


def _unanswerable(m: Permits, now: int, id: str) -> set[str]:
    row = m.requests.get(id)
    if row is None:
        return {"unknown_request"}
    return {"already_resolved"} if row["state"] != "pending" or now >= row["expires"] else set()


def _differs(m: Permits, s: Row, names: tuple[str, ...], regime: str) -> set[str]:
    row = m.requests.get(s["request"])
    if row is None or (row["regime"] == regime and all(row[name] == s[name] for name in names)):
        return set()
    return {"approval_differs"}


def approve(m: Permits, now: int, s: Row) -> Choices:
    """s: a statement that says all that the act is bound to, and which request it answers."""
    why, crowded = m.flaws(now, s) | _unanswerable(m, now, s["request"]) | _differs(m, s, BOUND, "act"), m.crowded(s)
    if why:
        return no(why)
    if why := hindrances(m, now, s["request"]):
        if why & LIFTED:
            return no(why & LIFTED) + crowded
        return no(why, m._ends_request(s["request"], "invalidated", now)) + crowded
    names = (
        "cn",
        "generation",
        "tool",
        "raw",
        "account",
        "resources",
        "version",
        "opens",
        "expires",
        "signer",
        "request",
    )
    act = {name: s[name] for name in names}
    return ok(s["id"], lambda m: m.grant(s["id"], act, now)) + crowded


LIFTED = {"agent_paused", "emergency_stop"}  # by the operator, who set it: that ends no request


def hindrances(m: Permits, now: int, id: str) -> set[str]:
    """Nobody is to sign what would be refused anyway: what else than the signature is missing by now."""
    row, layers = m.requests[id], m.layers(m.requests[id]["cn"])
    why = no_call(m, now, row)
    if not row["tool"]:
        return why | no_lease(m, layers, row["account"])
    judged = terms.judge(layers, row["tool"], row["args"])
    why |= judged.refused | ({"tool_changed"} if row["tool"] in m.changed else set())
    lease = (judged.regime, judged.account) == ("lease", row["account"])
    act = (judged.account, judged.resources) == (row["account"], row["resources"])
    fits = lease if row["regime"] == "lease" else act
    return why if judged.refused or fits else why | {"approval_differs"}


def no_call(m: Permits, now: int, who: Row) -> set[str]:
    """Why no call of this identity would go through, whatever it is."""
    why = ({"agent_paused"} if who["cn"] in m.paused else set()) | ({"emergency_stop"} if m.stopped else set())
    return why | m.exhausted(who, now) - {"usage_unreported"}


def no_lease(m: Permits, layers: list[Row], account: str) -> set[str]:
    """Why no lease of this account would let the agent read anything."""
    if not layers or account not in layers[0]["accounts"]:
        return {"unknown_account"}
    if terms.terms(layers, account)["sensitive"]:
        return {"denied_by_rule"}
    reads = "read" in m.accepted and all(layer["tiers"].get("read") == "allowed" for layer in layers)
    return set() if reads else {"denied_by_default"}


def open_lease(m: Permits, now: int, boot: float, s: Row) -> Choices:
    """s: account, seconds, operations, and the request that it answers, perhaps none. It replaces, and never adds."""
    why, layers = m.flaws(now, s) | ({"not_yet_valid"} if s["opens"] > now else set()), m.layers(s["cn"])
    request = m.requests.get(s["request"], {"seconds": None, "tool": ""})
    own = (request["tool"], request["raw"]) if request["tool"] else None
    if s["request"]:
        why |= _unanswerable(m, now, s["request"]) | _differs(m, s, ("cn", "generation", "account"), "lease")
    if why:
        return no(why)
    if s["request"] and (why := hindrances(m, now, s["request"])):
        if why & LIFTED:
            return no(why & LIFTED) + m.crowded(s)
        return no(why, m._ends_request(s["request"], "invalidated", now)) + m.crowded(s)
    if not s["request"] and (why := no_call(m, now, s)):
        return no(why) + m.crowded(s)
    if why := no_lease(m, layers, s["account"]) | ({"no_run"} if m.run(s) is None else set()):
        return no(why) + m.crowded(s)
    most = terms.terms(layers, s["account"])
    row = {
        "cn": s["cn"], "generation": s["generation"], "account": s["account"], "signer": s["signer"],
        "run": m.run_of[s["cn"], s["generation"]], "used": 0, "first": None, "opened": now,
        "boot": boot, "own": own,
        "seconds": min(s["seconds"], most["seconds"], request["seconds"] or s["seconds"]),
        "operations": min(s["operations"], most["operations"]), "by": min(now + FIRST_READ, s["expires"]),
    }  # fmt: skip
    old = [id for id, lease in m.leases.items() if (lease["cn"], lease["account"]) == (s["cn"], s["account"])]

    def opens(m: Permits) -> None:
        m.leases[s["id"]] = m.lease_ids[s["id"]] = dict(row)
        if s["request"]:
            m.requests[s["request"]] |= {"state": "approved", "ended": now, "answer": s["id"]}

    return ok(s["id"], *m.closings(old), opens) + m.crowded(s)


def ask_lease(m: Permits, now: int, who: Row, account: str, seconds: int | None, request: str, new_run: str) -> Choices:
    """An agent asks for a lease by itself; shorter than the policy's, and never longer."""
    if why := m.bars(who, now) | m.not_now(who):
        return no(why)
    if why := m.exhausted(who, now):
        return no(why)
    layers = m.layers(who["cn"])
    if why := no_lease(m, layers, account):
        return no(why)
    cn, generation = who["cn"], who["generation"]
    most = min(seconds, terms.terms(layers, account)["seconds"]) if seconds else None
    wanted = {
        "cn": cn, "generation": generation, "regime": "lease", "tool": "", "raw": b"", "args": {}, "account": account,
        "resources": (), "version": None, "seconds": most, "run": m.run_of.get((cn, generation), new_run),
    }  # fmt: skip
    begins = () if (cn, generation) in m.run_of else (lambda m: m.begin_run(new_run, cn, generation, now),)
    return m.ask(now, request, wanted, {False}, (), begins)


def deny(m: Permits, now: int, e: Row, id: str) -> Choices:
    if why := _unanswerable(m, now, id):
        return no(why)
    return ok(id, orders.spend(e), m._ends_request(id, "denied", now))


def close_lease(m: Permits, now: int, e: Row, id: str) -> Choices:
    """Early; where there is none of that id, it is no error."""
    return ok(id in m.leases, orders.spend(e), *m.closings([id] if id in m.leases else []))


def release(m: Permits, cn: str, account: str) -> Choices:
    mine = [id for id, row in m.leases.items() if (row["cn"], row["account"]) == (cn, account)]
    return ok(bool(mine), *m.closings(mine))


def revoke_act(m: Permits, now: int, e: Row, id: str) -> Choices:
    """Before it is spent; while its call runs too, should that not be sent."""
    alive = id in m.acts and m.alive(m.acts[id])
    return ok(alive, orders.spend(e), *([m._ends_act(id, "revoked", now)] if alive else []))


def new_run(m: Permits, now: int, e: Row, cn: str, run: str) -> Choices:
    """A fresh budget; the last run's leases are over."""
    if cn not in m.agents:
        return no({"unknown_agent"})
    generation = m.agents[cn]["generation"]
    last = m.run_of.get((cn, generation), "")
    ends = _end_run(m, now, last) if last and not m.runs[last]["over"] else []
    return ok(run, orders.spend(e), *ends, lambda m: m.begin_run(run, cn, generation, now))


def stop_run(m: Permits, now: int, e: Row, run: str) -> Choices:
    """For good."""
    alive = run in m.runs and not m.runs[run]["over"]
    return ok(alive, orders.spend(e), *(_end_run(m, now, run) if alive else []))


def _end_run(m: Permits, now: int, run: str) -> list[Effect]:
    leases = [id for id, row in m.leases.items() if row["run"] == run]
    return [*m.closings(leases), lambda m: m.end_run(run, now)]


def stop_all(m: Permits) -> Choices:
    return ok(False) if m.stopped else ok(True, lambda m: setattr(m, "stopped", True))


def lift_stop(m: Permits, now: int, e: Row) -> Choices:
    lifts = [lambda m: setattr(m, "stopped", False)] if m.stopped else []
    return ok(m.stopped, orders.spend(e), *lifts)


def report_usage(m: Permits, now: int, run: str, tokens: int, output: int, cost: int) -> Choices:
    """Figures only add up; of a run that is over they are of no use."""
    if run not in m.runs or m.runs[run]["over"]:
        return ok("")

    def adds(m: Permits) -> None:
        row = m.runs[run]
        row["input_tokens"] += tokens
        row["output_tokens"] += output
        row["cost"] += cost
        row["reported"] = now

    return ok(run, adds)


def apply_policy(m: Permits, now: int, e: Row, scope: str, policy: Row, version: str) -> Choices:
    return ok(version, orders.spend(e), lambda m: m.policies.update({scope: policy}))


def accept_tools(m: Permits, now: int, e: Row, tools: dict[str, int]) -> Choices:
    """Pin these definitions; what was asked or signed of these tools rests on the pins of then."""

    def accepts(m: Permits) -> None:
        m.accepted |= tools
        m.changed = {tool: seen for tool, seen in m.changed.items() if tool not in tools}
        m.cancel(lambda row: row["tool"] in tools, now)

    return ok(tuple(tools), orders.spend(e), *_voided(m, now, tuple(tools)), accepts)


def _voided(m: Permits, now: int, tools: tuple[str, ...]) -> list[Effect]:
    """What was asked rests on the definition of then; each agent is told."""
    waits = [id for id, row in m.requests.items() if row["state"] == "pending" and row["tool"] in tools]
    return [m._ends_request(id, "invalidated", now) for id in waits]


def see_tools(m: Permits, now: int, seen: dict[str, int]) -> Choices:
    """What a server defines otherwise, or no longer, is shut until it is accepted again."""
    other = [tool for tool, version in m.accepted.items() if seen.get(tool) != version]
    new = [tool for tool in other if tool not in m.changed]

    def shuts(tool: str) -> Effect:
        return lambda m: m.see(tool, seen.get(tool), now)

    return ok(tuple(new), *_voided(m, now, tuple(new)), *(shuts(tool) for tool in new))


def uphold(m: Permits, now: int, bad: str) -> Choices:
    """A key counts no more: nothing goes on that it signed, and that was not used."""
    (choice,) = orders.uphold(m, now, bad)
    acts = [id for id, row in m.acts.items() if m.alive(row) and row["signer"] == bad]
    leases = [id for id, row in m.leases.items() if row["signer"] == bad]
    return ok(None, *choice.effects, *(m._ends_act(id, "invalidated", now) for id in acts), *m.closings(leases))
