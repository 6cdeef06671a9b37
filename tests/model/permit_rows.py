"""What the operator is shown of tool calls, compared with the model after each step."""

from __future__ import annotations

from hypothesis.stateful import invariant

from broker.rules.authority import rows
from broker.wire.names import Instant
from broker.wire.times import show
from tests.model.calls import Calls
from tests.model.reference import SECOND, TOMBSTONE, Row, the_time


class Shown(Calls):
    """Every request, act, lease and run."""

    def settle(self, now: int) -> None:
        """What ended is remembered for 48 hours, and is forgotten some time after."""
        super().settle(now)
        own = self.system.book.ledger
        for told, real in (
            (self.model.requests, own.requests), (self.model.acts, own.acts), (self.model.runs, own.runs),
        ):  # fmt: skip
            for id in [id for id, row in told.items() if row["ended"] and now - row["ended"] >= TOMBSTONE]:
                if id not in real:
                    del told[id]
        for id in [id for id, row in self.model.claims.items() if self.model.forgettable(row, now)]:
            if id not in own.claims:
                del self.model.claims[id]
        for id in [id for id, row in self.model.lease_ids.items() if now - row["opened"] >= TOMBSTONE]:
            if id not in own.lease_ids:
                del self.model.lease_ids[id]

    @invariant()
    def what_is_shown_of_authority_is_what_the_model_says(self) -> None:
        now = the_time(self.system.wall, self.newest())
        if now is None:
            return
        self.settle(now)
        book, m, at = self.system.book, self.model, Instant(now)
        assert {row["request"]: _request(row) for row in rows.requests(book, at)} == {
            id: (self.state(row, now), row["regime"], row["cn"], row["generation"], row["account"], row["answer"])
            for id, row in m.requests.items()
        }
        assert {row["act"]: (row["state"], row["claim"]) for row in rows.acts(book, at)} == {
            id: (self.act_state(row, now), row["claim"]) for id, row in m.acts.items()
        }
        assert {row["lease"]: _lease(row) for row in rows.leases(book, at)} == {
            id: (row["used"], row["seconds"], row["operations"], row["account"], row["run"], _closes(row))
            for id, row in m.leases.items()
        }
        for row in rows.runs(book, at):
            told = m.runs[row["run"]]
            assert row["used"] == m.spending(told, now)
            assert row["state"].startswith("stopped") == told["over"]
        assert {tool for _, tool in book.ledger.changed} == m.changed.keys()
        assert bool(book.ledger.stopped_at) == m.stopped

    def state(self, row: Row, now: int) -> str:
        """Of a request: once the act that answered it was used or is over, what came of that."""
        if (act := self.model.acts.get(row["answer"])) and (state := self.act_state(act, now)) != "active":
            return state
        return "expired" if row["state"] == "pending" and now >= row["expires"] else str(row["state"])

    def act_state(self, row: Row, now: int) -> str:
        late = row["state"] == "active" and now >= row["expires"]
        return self.model.claims.get(row["claim"], row).get("outcome") or ("expired" if late else str(row["state"]))


def _request(row: Row) -> tuple[object, ...]:
    agent = row["agent"]
    return row["state"], row["regime"], agent["cn"], agent["generation"], row["account"] or "", row["answer"]


def _lease(row: Row) -> tuple[object, ...]:
    return row["used"], row["seconds"], row["operations"], row["account"], row["run"], row["closes_at"]


def _closes(row: Row) -> str:
    return show(Instant(row["first"][0] + row["seconds"] * SECOND if row["first"] else row["by"]))
