"""How a broker ends, and how it begins again, on both sides."""

from __future__ import annotations

from broker.rules.decision import Decision
from tests.model import system
from tests.model.acts import Acts
from tests.model.reference import ok, the_time
from tests.model.stage import Stage


class Ends(Acts):
    """Stops, kills, a disk that refuses, a clock that is set back."""

    def nothing(self) -> None:
        Stage.turn(self, lambda book, now: Decision(), lambda now: ok())

    def restart(self) -> None:
        """What the records make is what the broker was that wrote them."""
        self.land(None)
        self.nothing()
        before, decided = system.image(self.system.book), self.decided
        self.start()
        self.nothing()
        if self.decided >= decided and the_time(self.system.wall, self.newest()) is not None:
            assert system.image(self.system.book) == before
            self.counts["restarts compared"] += 1

    def start(self) -> None:
        for asked, _ in self.pending:
            asked.drop()
        self.pending.clear()
        self.decided = 0
        self.held = False
        self.system.restart()

    def crash(self, fails: bool) -> None:
        """The process ends, or the disk refuses and ends it: what is durable stays, and it is all that was answered."""
        if fails:
            self.system.journal.stopped = True
            for asked, _ in self.pending:
                asked.poll()
                assert asked.failed, "nothing is acknowledged after the disk refused"
            asked = self.system.ask(lambda book, now: Decision())
            assert asked.failed or asked.released == ("no", "clock_behind")
        count = len(self.system.journal.kept)
        self.counts["records lost"] += len(self.system.journal.records) - count
        self.start()
        self.model = self.new_model()
        self.history = [(start, effects) for start, effects in self.history if start < count]
        for _, effects in self.history:
            for effect in effects:
                effect(self.model)
        self.counts["crashes"] += 1

    def behind(self) -> bool:
        """Does the journal know a later time than the clock?"""
        return the_time(self.system.wall, self.newest()) is None

    def go_on_with_an_earlier_clock(self) -> None:
        self.crash(fails=False)
        at, behind = self.system.wall, the_time(self.system.wall, self.newest()) is None
        start = len(self.system.journal.records)
        assert self.system.accept_clock() == behind, "only a clock that is behind is accepted"
        if behind:
            self.model.set_back(at)
            self.history.append((start, (lambda m: m.set_back(at),)))
            self.counts["clocks set back"] += 1

    def teardown(self) -> None:
        for asked, _ in self.pending:
            asked.drop()
