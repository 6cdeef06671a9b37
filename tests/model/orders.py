"""What the operator's signed orders, and the broker by itself, may do to the reference model; written from docs/ too.

e is an envelope: digest, op, instance, issued. The first record of each order spends it.
"""

from __future__ import annotations

from tests.model.reference import FRESH, SECOND, Choices, Effect, Model, Row, no, ok


def flaws(m: Model, now: int, e: Row, op: str, instance: str) -> set[str]:
    """Every true reason against an envelope."""
    why = {"wrong_instance"} if e["instance"] != instance else set()
    if e["op"] != op:
        why.add("wrong_operation")
    if abs(e["issued"] - now) > FRESH:
        why.add("envelope_stale")
    if e["digest"] in m.used:
        why.add("envelope_replayed")
    return why


def spend(e: Row) -> Effect:
    return lambda m: m.used.add(e["digest"])


def take(m: Model, now: int, e: Row) -> Choices:
    """An order that only reads."""
    return ok(None, spend(e))


def revoke(m: Model, now: int, e: Row, id: str) -> Choices:
    """True where it was still active; what was just consumed is not repeated any more."""
    row = m.known(id, now)
    if row and m.state(row, now) == "active":
        return ok(True, spend(e), lambda m: m.end(id, "revoked", now))
    if row and row["repeat"] and now < row["repeat"][2]:
        return ok(False, spend(e), lambda m: m.directives[id].update(repeat=None))
    return ok(False, spend(e))


def invite(m: Model, now: int, e: Row, cn: str, ticket: str, expires_s: int) -> Choices:
    """A ticket for a name; earlier unredeemed ones of that name are void."""
    if cn == "selftest":
        return no({"reserved_name"})
    expires, row = now + expires_s * SECOND, m.tickets.get(ticket)
    good = ok(expires, spend(e), lambda m: m.invite(cn, ticket, expires))
    if row is None:
        return good
    over = now >= max(row["expires"], row["answer"][2] if row["answer"] else 0)
    return no({"bad_params"}) + (good if over else [])


def revoke_agent(m: Model, now: int, e: Row, cn: str) -> Choices:
    """Nothing of that name gets in; False where there was nothing to shut out."""
    agent = m.agents.get(cn)
    tickets = {now < row["expires"] for row in m.tickets.values() if row["cn"] == cn and not row["answer"]}
    shut, nothing = ok(True, spend(e), *m.closes(cn), lambda m: m.shut(cn, now)), ok(False, spend(e))
    if (agent and agent["state"] != "revoked") or True in tickets:
        return shut
    return shut + nothing if tickets else nothing  # an expired ticket may be remembered for a moment


def pause(m: Model, now: int, e: Row, cn: str) -> Choices:
    """Bar a name from everything but renewals; False where there is none of that name, or it is paused."""
    if cn not in m.agents or cn in m.paused:
        return ok(False, spend(e))
    return ok(True, spend(e), *m.closes(cn), lambda m: m.paused.add(cn))


def resume(m: Model, now: int, e: Row, cn: str) -> Choices:
    """The end of a pause."""
    return ok(True, spend(e), lambda m: m.paused.remove(cn)) if cn in m.paused else ok(False, spend(e))


def uphold(m: Model, now: int, bad: str) -> Choices:
    """What a key signed that no longer counts, and was not consumed, is void."""
    signed = [(id, row) for id, row in m.directives.items() if row["state"] == "active" and row["signer"] == bad]
    ids = [id for id, row in signed if row["expires"] > now]
    return ok(None, *(_ends(id, "invalidated", now) for id in ids))


def sweep(m: Model, now: int) -> Choices:
    """Windows that closed are written down, in one record; nothing depends on when."""
    due = [id for id, row in m.directives.items() if row["state"] == "active" and now >= row["expires"]]

    def write(m: Model) -> None:
        for id in due:
            m.end(id, "expired", now)

    return ok(None, *([write] if due else []))


def _ends(id: str, state: str, now: int) -> Effect:
    return lambda m: m.end(id, state, now)


# What the operator is shown.


def rows(m: Model, now: int) -> dict[str, Row]:
    """By id: whose it is, the states that it may be shown in, when it was consumed, what was reported."""
    shown = {}
    for id in m.directives:
        if row := m.known(id, now):
            state = m.state(row, now)
            waits = state == "active" and now < row["opens"]
            shown[id] = {
                "target": (row["cn"], row["generation"]),
                "states": {"scheduled"} if waits else m.ends(row | {"state": state}),
                "consumed": row["ended"] if state == "consumed" else None,
                "report": row["report"],
            }
    return shown


def agent_rows(m: Model, now: int) -> dict[str, Row]:
    """By name, enrolled or invited."""
    invited = {r["cn"]: r["expires"] for r in m.tickets.values() if not r["answer"] and now < r["expires"]}
    return {cn: _agent_row(m, cn, now) | {"invite": invited.get(cn)} for cn in {*m.agents, *invited}}


def _agent_row(m: Model, cn: str, now: int) -> Row:
    agent = m.agents.get(cn, {"generation": 0, "state": "invited", "renewals": None, "not_after": None})
    live = [m.directives[id] for id in m.live(cn)]
    state = "paused" if cn in m.paused and agent["state"] == "enrolled" else agent["state"]
    shown = {key: agent[key] for key in ("generation", "renewals", "not_after")}
    # What closed and was not yet written down counts for a second.
    return shown | {"state": state, "active": (sum(now < row["expires"] for row in live), len(live))}
