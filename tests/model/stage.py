"""What every step of the machine goes through: a turn taken on both sides, and all that is shown compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from broker.wire.names import Instant
from broker.wire.records import ClockAccepted
from broker.wire.times import show
from tests.model import orders
from tests.model.reference import SECOND, Choices, Effect, Model, Row, the_time
from tests.model.system import CAP, EXPIRY_MAX_S, REPEAT_S, Asked, Decide, System

START = 1_767_225_600 * SECOND
COUNTS: Counter[str] = Counter()
"""What all runs of this process did: the figures of `python -m tests.model`."""


class Stage(RuleBasedStateMachine):
    """A model and a system that see the same."""

    counts = COUNTS

    @staticmethod
    def new_model() -> Model:
        return Model(cap=CAP, repeat_s=REPEAT_S, expiry_max_s=EXPIRY_MAX_S)

    def __init__(self) -> None:
        super().__init__()
        self.system, self.model = System(Instant(START)), self.new_model()
        self.history: list[tuple[int, tuple[Effect, ...]]] = []  # where in the journal a turn began, what it changed
        self.pending: list[tuple[Asked, Callable[[Any], None]]] = []
        self.held = False
        self.decided = 0  # the time of the newest decision of this life of the broker
        self.serial = 0
        self.statements: list[Row] = []
        self.envelopes: list[Row] = []
        self.tickets: list[str] = []
        self.issued: dict[Any, Row] = {}
        self.identities: list[Row] = []
        self.handed: dict[Any, tuple[str, ...]] = {}
        self.once: set[Any] = set()
        self.reborn = False
        self.highest: Counter[str] = Counter()

    # What every step goes through.

    def newest(self) -> int:
        """The newest time that anything was decided by, or written since the clock was last set back."""
        at = 0
        for record, _ in self.system.journal.records:
            at = record.at if isinstance(record.fact, ClockAccepted) else max(at, record.at)
        return max(at, self.decided)

    def turn(
        self, decide: Decide, choices: Callable[[int], Choices], released: Callable[[Any], None] = lambda value: None
    ) -> Asked:
        """One request: what the real rules decide must be one of the model's choices; its answer waits for the disk."""
        now, start, permitted = the_time(self.system.wall, self.newest()), len(self.system.journal.records), Choices()

        def before(at: Instant) -> None:
            assert at == now, "a decision's time is the clock, or the newest time that was decided by"
            self.decided = at
            self.settle(at)
            left = [id for id in self.model.directives if self.model.must_forget(id, at) and id not in self.model.gone]
            assert not left, "what has been over for so long is kept for ever"
            permitted.extend(choices(at))

        asked = self.system.ask(decide, before)
        self.counts["answers compared"] += 1
        if now is None:
            assert asked.released == ("no", "clock_behind"), "with a later time in the journal nothing is decided"
            return asked
        found = [choice for choice in permitted if choice.outcome == asked.decided]
        assert found, f"answered {asked.decided}, the documents say {[c.outcome for c in permitted]}"
        effects = found[0].effects
        assert asked.facts == len(effects), "every change is a record, and every record a change"
        for effect in effects:
            effect(self.model)
        self.history.append((start, effects))
        self.pending.append((asked, released))
        self.hear()
        if not self.held:
            self.land(None)
        return asked

    def land(self, count: int | None) -> None:
        """So many more records are on disk; who waited for them, and nobody else, is answered as it was decided."""
        self.system.journal.sync(count)
        self.hear()

    def hear(self) -> None:
        for asked, released in list(self.pending):
            asked.poll()
            assert not asked.failed
            if asked.needed > self.system.journal.durable_count:
                assert asked.released is None, "nothing leaves before it is written"
                continue
            assert asked.released == asked.decided, "the answer is the one that was decided"
            self.pending.remove((asked, released))
            if asked.released and asked.released[0] == "ok":
                released(asked.released[1])

    def settle(self, now: int) -> None:
        """From 48 hours past its expiry on an id may be forgotten, and before that never."""
        shown = self.system.rows(Instant(now))
        m = self.model
        m.gone |= {id for id in m.directives if id not in shown and m.may_forget(id, now)}

    @invariant()
    def what_is_listed_is_what_the_model_says(self) -> None:
        self.counts["steps"] += 1
        now = the_time(self.system.wall, self.newest())
        if now is None:
            return
        self.settle(now)
        shown, told = self.system.rows(Instant(now)), orders.rows(self.model, now)
        assert shown.keys() == told.keys(), "which ids are listed"
        for id, row in told.items():
            found = shown[id]
            assert (found["target"]["cn"], found["target"]["generation"]) == row["target"]
            assert found["state"] in row["states"], f"{id} is listed as {found['state']}, not {row['states']}"
            assert found.get("consumed_at") == (show(row["consumed"]) if row["consumed"] else None)
            report = found.get("report")
            assert (report["outcome"] if report else None) == row["report"]
        self.compare_agents(now)

    def compare_agents(self, now: int) -> None:
        shown, told = self.system.agent_rows(Instant(now)), orders.agent_rows(self.model, now)
        assert shown.keys() == told.keys(), "which agents are listed"
        for cn, row in told.items():
            found, certificate = shown[cn], shown[cn]["certificate"] or {}
            assert (found["generation"], found["state"]) == (row["generation"], row["state"])
            assert certificate.get("renewals") == row["renewals"]
            assert certificate.get("not_after") == (show(row["not_after"]) if row["not_after"] else None)
            assert found["invite_expires_at"] == (show(row["invite"]) if row["invite"] else None)
            assert row["active"][0] <= found["active_directives"] <= row["active"][1]
